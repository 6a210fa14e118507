// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "fuse/nodes/node_ref.h"
#include "store/sys/mutex.h"

namespace cacheshim {

class Job;

// The entries that are being published, and the requests that are answered once they are. Thread-safe.
class Underway {
 public:
  struct Waiters {
    std::vector<NodeId> held;  // the directories whose locks the requests hold in the kernel
    std::vector<std::function<void()>> answers;
  };
  struct Entry {
    Job* job;
    std::string path;
    Waiters waiters;
  };
  using Token = std::list<Entry>::iterator;

  Token begin(Job& job, std::string entry, Waiters waiters) EXCLUDES(mutex_);
  std::vector<Job*> publishers(std::string_view entry) const EXCLUDES(mutex_);
  // Lets a request wait if an entry of the job that contains `path` is being published. Otherwise returns false, and
  // changes nothing.
  bool join(const Job& job, std::string_view path, const std::vector<NodeId>& held,
            const std::function<void()>& answer) EXCLUDES(mutex_);
  // Returns the waiting requests. Call once for each begin().
  Waiters end(Token token) EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
