// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace cacheshim {

// How the daemon detects changes to the base by other processes.
enum class WatchMode {
  kFanotify,  // one mark per file system; needs root (CAP_SYS_ADMIN)
  kInotify,   // one watch per directory
  kNone,      // not at all: only timeouts limit how long a change stays unseen
};

inline std::string_view to_string(WatchMode mode) {
  switch (mode) {
    case WatchMode::kFanotify:
      return "fanotify";
    case WatchMode::kInotify:
      return "inotify";
    case WatchMode::kNone:
      break;
  }
  return "none";
}

inline std::optional<WatchMode> parse_watch_mode(std::string_view text) {
  for (const WatchMode mode : {WatchMode::kFanotify, WatchMode::kInotify, WatchMode::kNone}) {
    if (text == to_string(mode)) return mode;
  }
  return std::nullopt;
}

}  // namespace cacheshim
