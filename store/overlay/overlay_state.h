// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/counters.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "store/layer/layer_index.h"
#include "store/layer/link_index.h"
#include "store/locks/base_locks.h"
#include "store/overlay/lower_stack.h"
#include "store/overlay/origin_log.h"
#include "store/overlay/overlay_types.h"
#include "store/overlay/staged_copies.h"
#include "store/profiles/entry_map.h"
#include "store/sys/path_root.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The data of an overlay. `mutex` protects the members with GUARDED_BY; the others need no lock, or have their own
// lock. Only for the functions of store/overlay/.
struct OverlayState {
  OverlayState(std::shared_ptr<const LowerStack> stack, const EntryMap& map, Counters& counts,
               OverlayObserver* watcher, OverlayOptions chosen);

  // Call before the layer gets or hides `path`: see OverlayObserver::shadows().
  void shadow(const std::string& path, bool tree) const {
    if (observer != nullptr) observer->shadows(path, tree);
  }
  // Call before the layer gets `names` objects and `bytes` bytes: see OverlayObserver::grow().
  Status grow(std::uint64_t bytes, std::uint64_t names) const {
    return observer != nullptr ? observer->grow(bytes, names) : Status();
  }
  // Whether the path is one of the store's own records, which no view shows.
  bool is_store_record(std::string_view path) const;
  // Returns EPERM for names that no job may create, ENAMETOOLONG for paths over kMostPathBytes.
  Status check_name(const std::string& path) const;

  mutable SharedMutex mutex{LockRank::kOverlay};
  const std::shared_ptr<const LowerStack> lowers;
  UniqueFd upper GUARDED_BY(mutex);
  std::shared_ptr<const UniqueFd> work GUARDED_BY(mutex);         // only if there is a layer
  std::unique_ptr<const PathRoot> upper_paths GUARDED_BY(mutex);  // only if there is a layer
  bool is_upper_local GUARDED_BY(mutex) = true;  // only this machine can change the layer's file system
  const EntryMap& entries;
  Counters& counters;
  OverlayObserver* const observer;
  const OverlayOptions options;
  LayerIndex index;
  LinkIndex links GUARDED_BY(mutex);
  OriginLog origins;
  BaseLocks locks;
  StagedCopies staged;
};

}  // namespace cacheshim
