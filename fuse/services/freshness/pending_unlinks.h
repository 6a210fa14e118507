// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fuse/services/freshness/notification.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Files that have just lost one of several names.
//
// The kernel caches a link count for each file. It decrements this count when it handles the answer to UNLINK, or to a
// RENAME that replaces the file. By then, the count may already be the new one:
//   1. The daemon removes the name.
//   2. The kernel gets the answer to a LOOKUP or GETATTR of the file, and with it the new count.
//   3. The kernel handles the answer to the UNLINK and decrements the new count.
// With a count of 0, link(2) fails with ENOENT although the file has a name. For all other answers that contain a
// count, the kernel holds the file's inode lock, which unlink(2) holds too.
//
// So until the daemon knows that step 3 is over, it
// - answers LOOKUP with a count increased by one, and lets the kernel cache no attributes: stat(2)
//   then sends a GETATTR;
// - invalidates the attributes just before it answers GETATTR: the kernel then passes the answer to the caller without
//   caching it (fuse_change_attributes() compares attr_version; Linux 5.8).
// Step 3 is over when the kernel has released the directory's lock. An invalidation of the name waits for this lock, so
// step 3 is over once the kernel has processed an invalidation. The daemon sends it when the file gets a LOOKUP or
// GETATTR, and for all listed files when there are more than kMost. No request waits for it. If a user's process blocks
// the invalidation (LateOwners), the file stays in the list. But if the list then has more than kMost files, the file
// leaves the list, and the user's own link(2) may fail as described.
//
// While an invalidation is blocked but does not count as late yet, the list may grow to kMostWhileDelayed files. Files
// beyond that are not listed: their link counts may be too small until the kernel's cached attributes expire.
//
// Thread-safe.
class PendingUnlinks {
 public:
  using NodeId = std::uint64_t;  // as in the kernel's requests
  static constexpr std::size_t kMost = 1024;
  static constexpr std::size_t kMostWhileDelayed = 16384;  // up to 6 MiB

  // Calls `done` with true once the kernel has released the directory's lock, or with false if that takes too long. May
  // call it on another thread. Does not block.
  using Invalidate =
      std::function<void(Notification name, std::function<void(bool is_released)> done)>;
  explicit PendingUnlinks(Invalidate invalidate) : invalidate_(std::move(invalidate)) {}

  // Call in the request that removes the name, before the removal. `name`: the invalidation of the name. The caller
  // must provide it now, because the directory's node may no longer exist when the invalidation is sent.
  void begin(NodeId file, Notification name) EXCLUDES(mutex_);
  // Call in a request that holds the file's inode lock: because unlink(2) has released this lock, step 3 is over.
  void end(NodeId file) EXCLUDES(mutex_);
  // Returns true while the file is listed, because step 3 is possibly not over. Call after reading the link count.
  bool has(NodeId file) EXCLUDES(mutex_);

 private:
  struct Removal {
    Notification name;
    std::uint64_t number;  // distinguishes two removals of names of the same file
  };
  struct Settling {
    NodeId file;
    std::uint64_t number;
  };

  void settle(const std::vector<NodeId>& files) EXCLUDES(mutex_);
  void settled(const std::vector<Settling>& removals, bool is_released) EXCLUDES(mutex_);

  const Invalidate invalidate_;
  // files_.size(). Sequentially consistent: written before the name is removed, and read after the link count has been
  // read.
  std::atomic<std::size_t> count_{0};
  Mutex mutex_{LockRank::kPendingUnlinks};
  std::unordered_map<NodeId, Removal> files_ GUARDED_BY(mutex_);
  std::unordered_set<NodeId> unsettled_ GUARDED_BY(mutex_);  // files without a pending invalidation
  std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
};

}  // namespace cacheshim
