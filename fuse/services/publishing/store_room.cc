// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/publishing/store_room.h"

#include <spdlog/spdlog.h>

namespace cacheshim {

bool StoreRoom::has_room() {
  const MutexLock lock(mutex_);
  if (full_since_ != 0) return false;
  if (space_.take(kLeast)) return true;
  become_full(space_.last_available());
  return false;
}

void StoreRoom::note_full() {
  const MutexLock lock(mutex_);
  if (full_since_ == 0) become_full(space_.measure().available);
}

void StoreRoom::become_full(std::uint64_t available) {
  full_since_ = std::time(nullptr);
  available_then_ = available;
  retry_at_ = now_() + kRetry;
  spdlog::warn(
      "the store is full ({} KiB are free): nothing is published until more is free; entries stay in their layers",
      available / 1024);
}

bool StoreRoom::take_resumption() {
  const MutexLock lock(mutex_);
  if (full_since_ == 0) return false;
  const FreeSpace::State state = space_.measure();
  const bool has_more = state.available >= available_then_ + kLeast;
  const bool may_retry = now_() >= retry_at_ && (state.total == 0 || state.available >= kLeast);
  if (!has_more && !may_retry) return false;
  full_since_ = 0;
  spdlog::info("publishing goes on: {} KiB of the store's file system are free",
               state.available / 1024);
  return true;
}

bool StoreRoom::is_full() const { return full_since() != 0; }

std::time_t StoreRoom::full_since() const {
  const MutexLock lock(mutex_);
  return full_since_;
}

}  // namespace cacheshim
