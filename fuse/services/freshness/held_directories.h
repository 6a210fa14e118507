// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "fuse/services/freshness/notification.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The directories that the kernel has locked for requests that wait for a long operation of the daemon. If one of these
// locks blocks an invalidation, the user who made the request is not to blame. Thread-safe.
class HeldDirectories : public std::enable_shared_from_this<HeldDirectories> {
 public:
  // The directories count as held until the result is destroyed.
  std::shared_ptr<void> hold(std::vector<Notification::DirectoryId> directories) {
    {
      const MutexLock lock(mutex_);
      held_.insert(held_.end(), directories.begin(), directories.end());
    }
    return {nullptr, [self = shared_from_this(), directories = std::move(directories)](void*) {
              self->release(directories);
            }};
  }
  bool contains(Notification::DirectoryId directory) const {
    const MutexLock lock(mutex_);
    return std::find(held_.begin(), held_.end(), directory) != held_.end();
  }

 private:
  void release(const std::vector<Notification::DirectoryId>& directories) {
    const MutexLock lock(mutex_);
    for (const auto directory : directories) {
      held_.erase(std::find(held_.begin(), held_.end(), directory));
    }
  }

  mutable Mutex mutex_;
  std::vector<Notification::DirectoryId> held_ GUARDED_BY(mutex_);  // a few for each request
};

}  // namespace cacheshim
