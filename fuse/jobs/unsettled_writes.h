// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <utility>

#include "store/threads/mutex.h"

namespace cacheshim {

// A job's writes that are not complete yet: descriptors that may write to a file, and publishing that has begun.
// Thread-safe.
class UnsettledWrites {
 public:
  // The longest wait for a RELEASE, which reaches the daemon some 10 µs after close(2). A delay of 100 ms does not
  // matter to a caller.
  static constexpr std::chrono::milliseconds kReleaseDelay{100};

  explicit UnsettledWrites(std::chrono::milliseconds release_delay = kReleaseDelay)
      : release_delay_(release_delay) {}

  // Counts descriptors that may write to a file, from open to RELEASE. FLUSH does not end the count, because a shell
  // closes a duplicate of the descriptor before the program writes the first byte.
  void add_writer(dev_t device, ino_t inode) EXCLUDES(mutex_);
  void remove_writer(dev_t device, ino_t inode) EXCLUDES(mutex_);
  bool is_being_written(dev_t device, ino_t inode) const EXCLUDES(mutex_);
  // Blocks until the file's last writer has closed it, but at most for the release delay. Returns false if the file is
  // still open then.
  bool wait_until_closed(dev_t device, ino_t inode) EXCLUDES(mutex_);

  // Call end_publishing() once for each call of begin_publishing().
  void begin_publishing() EXCLUDES(mutex_);
  void end_publishing() EXCLUDES(mutex_);

  // Waits for publishing and closes in progress, so that everything that the job's processes did
  // before they exited is complete. Stops waiting for a close after the release delay.
  void wait() EXCLUDES(mutex_);

 private:
  const std::chrono::milliseconds release_delay_;
  mutable Mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, int> writers_ GUARDED_BY(mutex_);
  int publishing_ GUARDED_BY(mutex_) = 0;
  CondVar settled_;  // a file's last writer has closed it, or publishing has ended
};

}  // namespace cacheshim
