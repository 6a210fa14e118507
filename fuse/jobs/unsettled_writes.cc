// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/unsettled_writes.h"

namespace cacheshim {

void UnsettledWrites::add_writer(dev_t device, ino_t inode) {
  const MutexLock lock(mutex_);
  ++writers_[{device, inode}];
}

void UnsettledWrites::remove_writer(dev_t device, ino_t inode) {
  const MutexLock lock(mutex_);
  const auto writer = writers_.find({device, inode});
  if (writer == writers_.end() || --writer->second > 0) return;
  writers_.erase(writer);
  settled_.notify_all();
}

bool UnsettledWrites::is_being_written(dev_t device, ino_t inode) const {
  const MutexLock lock(mutex_);
  return writers_.contains({device, inode});
}

// close(2) does not wait until the daemon has processed the RELEASE, so a rename that follows the close may overtake
// the RELEASE.
bool UnsettledWrites::wait_until_closed(dev_t device, ino_t inode) {
  const auto deadline = std::chrono::steady_clock::now() + release_delay_;
  const MutexLock lock(mutex_);
  while (writers_.contains({device, inode})) {
    if (!settled_.wait_until(mutex_, deadline)) return !writers_.contains({device, inode});
  }
  return true;
}

void UnsettledWrites::begin_publishing() {
  const MutexLock lock(mutex_);
  ++publishing_;
}

void UnsettledWrites::end_publishing() {
  const MutexLock lock(mutex_);
  --publishing_;
  settled_.notify_all();
}

void UnsettledWrites::wait() {
  const auto deadline = std::chrono::steady_clock::now() + release_delay_;
  const MutexLock lock(mutex_);
  while (!writers_.empty() && settled_.wait_until(mutex_, deadline)) continue;
  while (publishing_ != 0) settled_.wait(mutex_);  // ends, because every publishing task ends
}

}  // namespace cacheshim
