// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "store/overlay/overlay_state.h"
#include "store/sys/keep_times.h"
#include "store/sys/sys.h"

namespace cacheshim {

// Use while the overlay changes a directory of the layer for itself. The destructor restores the times that can be set,
// and tells the observer.
class KeepDirectory {
 public:
  // `path`: the directory's path in the layer. `directory`: the directory, or one above it, open; `below`: the path
  // from there. `overlay`, `path` and `directory` must outlive this object.
  KeepDirectory(const OverlayState& overlay, std::string_view path, int directory,
                std::string below = {})
      : overlay_(overlay),
        path_(path),
        directory_(directory),
        below_(std::move(below)),
        times_(std::in_place, directory, below_) {}
  ~KeepDirectory() {
    const Result<struct stat> before = times_->before();
    times_.reset();
    if (overlay_.observer == nullptr || !before) return;
    const auto after = sys::stat_at(directory_, below_);
    if (after) overlay_.observer->changed_directory(std::string(path_), *before, *after);
  }
  KeepDirectory(const KeepDirectory&) = delete;
  KeepDirectory& operator=(const KeepDirectory&) = delete;

 private:
  const OverlayState& overlay_;
  const std::string_view path_;
  const int directory_;
  const std::string below_;
  std::optional<KeepTimes> times_;
};

}  // namespace cacheshim
