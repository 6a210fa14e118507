// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuse/nodes/node_ref.h"
#include "store/threads/mutex.h"

namespace cacheshim {

class Job;

// The entries that are being published, and the requests that wait for their publishing. Thread-safe.
class Underway {
 public:
  struct Waiters {
    std::vector<NodeId> held;  // the directories that the kernel has locked for the requests
    std::vector<std::function<void()>> answers;
  };
  struct Entry {
    std::shared_ptr<Job> job;
    std::string path;
    Waiters waiters;
  };
  // The publishing of one entry, from begin() until end(). If this object is destroyed without a call to end(), the
  // waiting requests fail with EIO (see Completion).
  class Publication {
   public:
    Publication(Underway& underway, std::list<Entry>::iterator at) : underway_(underway), at_(at) {}
    ~Publication() { (void)end(); }
    Publication(const Publication&) = delete;
    Publication& operator=(const Publication&) = delete;

    // Returns the waiting requests. A second call returns none.
    Waiters end();

   private:
    Underway& underway_;
    std::optional<std::list<Entry>::iterator> at_;
  };

  std::shared_ptr<Publication> begin(Job& job, std::string entry, Waiters waiters) EXCLUDES(mutex_);
  // Returns the jobs that are publishing the entry.
  std::vector<std::shared_ptr<Job>> publishers(std::string_view entry) const EXCLUDES(mutex_);
  // If the job is publishing an entry that contains `path`, adds the request to the requests that wait for the entry,
  // and returns true. Otherwise returns false and changes nothing.
  bool join(const Job& job, std::string_view path, const std::vector<NodeId>& held,
            const std::function<void()>& answer) EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::list<Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
