// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <string>
#include <thread>

#include "common/unique_fd.h"
#include "store/sys/mutex.h"
#include "store/sys/process_origin.h"

namespace cacheshim {

class Job;

// A lock file that excludes by being there (O_CREAT|O_EXCL), and that its maker is to remove.
struct Baton {
  Job* job = nullptr;
  std::string path;  // in the job's view
  dev_t device = 0;
  ino_t inode = 0;
};

// Watches over the makers of batons: one that dies without having removed its baton would have all others
// wait for ever. It is given up for `reap` to remove when the process is dead, and no descendant of it
// is at work in the baton's folder any more. Of a maker that is not seen from here nothing is known, and
// its baton stays.
//
// A thread of its own, which sleeps on the makers' pidfds. Thread-safe.
class Batons {
 public:
  explicit Batons(std::function<void(const Baton&)> reap);
  ~Batons();
  Batons(const Batons&) = delete;
  Batons& operator=(const Batons&) = delete;

  // From now on, in place of what was watched of that name. Does nothing without a maker.
  void watch(const Baton& baton, ProcessOrigin maker);
  void removed(const Job* job, const std::string& path);

 private:
  struct Watched {
    Baton baton;
    ProcessOrigin maker;
    UniqueFd pidfd;
    bool is_orphan = false;
  };

  void run();
  void wake() const;
  // Returns those whose makers are gone, without them in the list.
  std::list<Watched> take_orphans();
  static bool is_dead(const Watched& watched);
  static bool is_in_use(const Watched& watched);

  const std::function<void(const Baton&)> reap_;
  const UniqueFd wake_;
  Mutex mutex_;
  std::list<Watched> watched_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cacheshim
