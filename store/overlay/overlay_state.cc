// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/overlay_state.h"

#include <utility>

#include "common/names.h"
#include "store/sys/paths.h"
#include "store/sys/whiteout.h"

namespace cacheshim {

OverlayState::OverlayState(std::shared_ptr<const LowerStack> stack, const EntryMap& map,
                           Counters& counts, OverlayObserver* watcher, OverlayOptions chosen)
    : lowers(std::move(stack)),
      entries(map),
      counters(counts),
      observer(watcher),
      options(chosen),
      origins(*lowers),
      locks(map),
      staged(watcher, chosen.keep_owner) {}

bool OverlayState::is_store_record(std::string_view path) const {
  if (!options.has_store_records || !path.starts_with(kControlName)) return false;
  return path.size() == kControlName.size() || path[kControlName.size()] == '/';
}

Status OverlayState::check_name(const std::string& path) const {
  if (is_reserved_name(base_name(path))) return Errno(EPERM);
  if (is_store_record(path)) return Errno(EPERM);
  if (path.size() > kMostPathBytes) return Errno(ENAMETOOLONG);
  return {};
}

}  // namespace cacheshim
