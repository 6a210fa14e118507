// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>

#include "store/sys/free_space.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Whether the store's file system has room for publishing. After publishing has failed for lack of room, the daemon
// publishes nothing until more space is free than at the failure, or until kRetry has passed. Otherwise each attempt
// would copy files only to fail again. Thread-safe.
class StoreRoom {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kRetry{60};
  // With fewer free bytes than this, an attempt cannot succeed: the names alone need a few blocks.
  static constexpr std::uint64_t kLeast = 16 * 1024;

  // `space` must outlive this object. `now`: for unit tests.
  explicit StoreRoom(FreeSpace& space, std::function<Clock::time_point()> now = Clock::now)
      : space_(space), now_(std::move(now)) {}

  // Call before an entry is published. Returns false while the store is full.
  bool has_room() EXCLUDES(mutex_);
  // Call when publishing has failed for lack of room.
  void note_full() EXCLUDES(mutex_);
  // Returns true if the store was full and publishing may be tried again. The store then no longer counts as full.
  bool take_resumption() EXCLUDES(mutex_);
  bool is_full() const EXCLUDES(mutex_);
  // When the store became full, in seconds since 1970; 0 if it is not full.
  std::time_t full_since() const EXCLUDES(mutex_);

 private:
  void become_full(std::uint64_t available) REQUIRES(mutex_);

  FreeSpace& space_;
  const std::function<Clock::time_point()> now_;
  mutable Mutex mutex_;
  std::time_t full_since_ GUARDED_BY(mutex_) = 0;
  std::uint64_t available_then_ GUARDED_BY(mutex_) = 0;
  Clock::time_point retry_at_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
