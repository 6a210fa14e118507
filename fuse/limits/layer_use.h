// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "common/result.h"
#include "fuse/limits/user_limits.h"
#include "store/sys/free_space.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The limits on the layers of a mount. All parts must outlive the layers.
struct LayerQuota {
  UserLimits& limits;
  FreeSpace& space;  // the free space of the layers' file system
  // Called when a layer should be measured, perhaps with locks held. Must not block.
  std::function<void()> wake;
};

struct LayerSize {
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;  // names of files, directories and other objects
};

// Counts the bytes and names of one layer, and charges them to its owner (max_layer_size, max_layer_files).
//
// Before each request, the daemon adds to the count what the request may add to the layer, so that no request can
// exceed a limit. It does not subtract what a request removes or overwrites: only the file system knows that. So the
// count may be too high until the layer is measured (LayerMeter). A layer is measured regularly while its owner has
// taken more than three quarters of a limit. So a count that is too high makes the daemon refuse a request only
// if the user has written and removed a quarter of the limit between two measurements. Layers of users without limits
// are not counted.
//
// Thread-safe.
class LayerUse {
 public:
  // If `quota` is null, there are no limits.
  explicit LayerUse(const LayerQuota* quota) : quota_(quota) {}

  // Call before the layer grows. Errors: ENOSPC if only the space reserved for root is free; EDQUOT if the owner has
  // reached a limit, or if an owner with a max_layer_size already has layers of more than 1 GiB and of more bytes than
  // are free.
  Status grow(uid_t owner, const LayerSize& added) EXCLUDES(mutex_);
  // Call when the layer has grown without a call of grow(). Returns true if the owner is over max_layer_size now.
  bool note_grown(uid_t owner, const LayerSize& added) EXCLUDES(mutex_);
  // Call adopt() when the layer holds objects that were never counted, and clear() when the job has given up the layer.
  void adopt();
  void clear() EXCLUDES(mutex_);

  // Whether the layer should be measured.
  bool is_due() const EXCLUDES(mutex_);
  bool is_near_limit() const EXCLUDES(mutex_);
  // Call before and after the layer is measured. Growth between the two calls is added to `found`. If clear() is called
  // between them, the measurement does not count.
  void begin_measuring() EXCLUDES(mutex_);
  void end_measuring(uid_t owner, const LayerSize& found) EXCLUDES(mutex_);
  LayerSize size() const EXCLUDES(mutex_);

  // The last measurement: when it began, and the earliest time of the next one.
  struct Walk {
    std::chrono::steady_clock::time_point began{};
    std::chrono::steady_clock::time_point next{};
  };
  Walk last_walk() const EXCLUDES(mutex_);
  void note_walk(const Walk& walk) EXCLUDES(mutex_);

 private:
  bool charge_to(UserAccount& account) REQUIRES(mutex_);
  bool try_grow(const LayerSize& added) REQUIRES(mutex_);
  bool is_near() const REQUIRES(mutex_);

  const LayerQuota* const quota_;
  std::atomic<bool> is_unmeasured_{false};
  mutable Mutex mutex_;
  UserAccount* account_ GUARDED_BY(mutex_) = nullptr;
  Charge bytes_ GUARDED_BY(mutex_);
  Charge files_ GUARDED_BY(mutex_);
  bool is_being_measured_ GUARDED_BY(mutex_) = false;
  LayerSize grown_ GUARDED_BY(mutex_);  // the growth since begin_measuring()
  Walk last_walk_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
