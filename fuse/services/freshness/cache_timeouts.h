// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fuse/jobs/job.h"
#include "fuse/nodes/io_modes.h"
#include "fuse/nodes/node_ref.h"
#include "fuse/services/freshness/invalidation.h"
#include "store/base/base_watch.h"

namespace cacheshim {

// A lookup in a directory, and the change counter of that directory when the lookup began.
struct DirectoryLookup {
  const Job* job;
  std::string directory;
  std::uint64_t generation;
  bool watched;
  bool late;  // the kernel must not cache the answer (LateOwners)
  bool claimed;
};

// Computes how long the kernel may cache an answer, in seconds. Thread-safe.
class CacheTimeouts {
 public:
  // All must outlive this object.
  CacheTimeouts(Invalidation& invalidation, const NodeTable& nodes, IoModes& io_modes)
      : invalidation_(invalidation), nodes_(nodes), io_modes_(io_modes) {}

  // Call before any other method. `lowers`: descriptors of the base or, for a plain overlay, of its lower directories.
  // `is_local`: whether only this machine changes these directories.
  void watch(EventLoop& loop, const std::vector<int>& lowers, WatchMode mode, bool is_local);
  void stop() { watch_.reset(); }
  WatchMode watch_mode() const { return watch_->mode(); }

  // Reads the change counter of the directory, and ensures that the directory is watched, if
  // possible. Call before the lookup in the base.
  DirectoryLookup begin(const Job& job, std::string directory) REQUIRES_SHARED(job.overlay.mutex());
  // Returns the timeout of a name. `found`: the object that the lookup has found; null if there is none.
  double of_name(const DirectoryLookup& lookup, const Found* found) const;
  double of_attributes(const DirectoryLookup& lookup, const Found& found, NodeRef ref)
      REQUIRES_SHARED(lookup.job->overlay.mutex());

 private:
  bool is_late(const Job& job) const;
  bool may_be_written_unseen(const DirectoryLookup& lookup, const Found& found, NodeRef ref)
      REQUIRES_SHARED(lookup.job->overlay.mutex());

  Invalidation& invalidation_;
  const NodeTable& nodes_;
  IoModes& io_modes_;
  std::unique_ptr<BaseWatch> watch_;
  bool is_local_ = false;
};

}  // namespace cacheshim
