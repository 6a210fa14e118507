// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>

#include "store/publish/publish_stage.h"
#include "store/sys/sys.h"

// Drops the layer's part of an entry if the base already has all of its files. This takes the same
// steps as publishing, but adds no files to the base.
namespace cacheshim {

bool Publisher::base_has_all(const Stage& stage) const {
  return std::all_of(stage.files.begin(), stage.files.end(), [&](const StagedFile& file) {
    return static_cast<bool>(
        sys::open_beneath(store_.base(), stage.path_of(file), O_PATH | O_NOFOLLOW));
  });
}

// After a failure, the copies stay in the layer.
PublishReport Publisher::drop_copies(Overlay& overlay, const std::string& unit,
                                     PublishHooks& hooks) {
  if (!hooks.why_refused().empty()) return {};
  if (!sys::open_beneath(store_.base(), unit, O_PATH | O_NOFOLLOW)) return {};
  const auto staging = staging_lock(overlay, unit);
  const MutexLock lock(*staging);
  auto stage = begin_stage(overlay, unit, {});
  if (!stage || stage->files.empty() || !base_has_all(*stage)) return {};
  const auto are_equal = stage_files(*stage, hooks);
  const bool is_all = are_equal && *are_equal && !stage->is_new &&
                      std::all_of(stage->files.begin(), stage->files.end(),
                                  [](const StagedFile& file) { return file.in_base; });
  return is_all && commit(overlay, *stage, unit, hooks) ? account(*stage) : PublishReport{};
}

}  // namespace cacheshim
