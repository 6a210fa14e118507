// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "fuse/requests/remote_entries.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The pack of the remote tier with which a job began; null without `job start --prefetch`. Thread-safe. A mutex guards
// the pointer, because clang's C++ library has no std::atomic<std::shared_ptr>.
class JobPack {
 public:
  using Pointer = std::shared_ptr<const RemoteEntries::Pack>;

  Pointer get() const {
    const MutexLock lock(mutex_);
    return pack_;
  }
  // Stores `pack` and returns the pack that was stored before.
  Pointer exchange(Pointer pack) {
    const MutexLock lock(mutex_);
    std::swap(pack, pack_);
    return pack;
  }

 private:
  mutable Mutex mutex_;
  Pointer pack_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
