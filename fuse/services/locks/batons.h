// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "store/sys/process_origin.h"
#include "store/threads/event_loop.h"
#include "store/threads/mutex.h"

namespace cacheshim {

class Job;

// A lock file that excludes other processes by its existence (O_CREAT|O_EXCL). Its creator must
// remove it.
struct Baton {
  std::shared_ptr<Job> job;
  std::string path;  // the file's path in the job's view
  dev_t device = 0;
  ino_t inode = 0;
};

// The functions with which Batons examines processes; replaced in tests.
struct BatonSystem {
  // Returns a descriptor that becomes readable when the process exits. Returns an empty descriptor if there is no such
  // process, or if it cannot be watched.
  std::function<UniqueFd(const ProcessOrigin& maker)> watch;
  std::function<bool(const ProcessOrigin& maker)> is_alive;
  // Whether a living descendant of the dead process has `directory`, or an object below it, open or as its working
  // directory.
  std::function<bool(const ProcessOrigin& maker, const std::string& directory)> is_in_use;
  static BatonSystem real();
};

// Watches the creators of batons. If a baton stayed after its creator has died, other processes would wait for it
// forever. So once the creator is dead and none of its descendants uses the baton's directory (BatonSystem::is_in_use),
// Batons passes the baton to `reap`, which removes it. If the daemon cannot see the creator, the baton stays. Each
// watched baton takes a descriptor, so Batons watches at most kMostOfJob batons of a job. A baton beyond this limit
// also stays.
//
// The event loop watches the creators' pidfds. Thread-safe.
class Batons {
 public:
  static constexpr std::size_t kMostOfJob = 1024;

  Batons(EventLoop& loop, std::function<void(const Baton&)> reap,
         BatonSystem system = BatonSystem::real());
  Batons(const Batons&) = delete;
  Batons& operator=(const Batons&) = delete;

  // Watches `maker`, the creator of `baton`. Ends an earlier watch of a baton at the same path. If `maker` is unknown
  // (process 0), only ends the earlier watch.
  void watch(const Baton& baton, ProcessOrigin maker);
  // Ends the watch of the job's baton at `path`, if there is one.
  void removed(const Job* job, const std::string& path);

 private:
  struct Watched {
    Baton baton;
    ProcessOrigin maker;
    UniqueFd pidfd;
    bool is_orphan = false;
  };
  // The key of a baton: its job and its path.
  using Key = std::pair<const Job*, std::string>;
  using All = std::map<Key, Watched>;
  static Key key_of(const Baton& baton) { return {baton.job.get(), baton.path}; }

  // Passes to `reap_` the batons whose creators are dead and whose directories no descendant uses. Returns when to call
  // tend() again.
  EventLoop::Clock::time_point tend() EXCLUDES(mutex_);
  // Takes the batons whose creators are dead out of watched_, and returns them.
  All take_orphans();
  // Puts the batons `in_use` back into watched_. Returns when to call tend() again.
  EventLoop::Clock::time_point put_back(All in_use) EXCLUDES(mutex_);
  void forget_one(const Job* job) REQUIRES(mutex_);
  bool is_dead(const Watched& watched) const;
  bool is_in_use(const Watched& watched) const;

  const std::function<void(const Baton&)> reap_;
  const BatonSystem system_;
  Mutex mutex_;
  All watched_ GUARDED_BY(mutex_);
  // For each job, the number of its batons in watched_, plus those that tend() is checking.
  std::map<const Job*, std::size_t> counts_ GUARDED_BY(mutex_);
  EventLoop::Task task_;  // keep last: it uses the other members
};

}  // namespace cacheshim
