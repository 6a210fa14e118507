// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "store/profile.h"
#include "store/publish_policy.h"
#include "store/watch_mode.h"

// The daemon of one mount: what `cacheshim mount` and `cacheshim run --store` start.
namespace cacheshim {

struct DaemonOptions {
  std::string store_dir;    // absolute
  std::string layers_dir;   // absolute; empty: STORE/.cacheshim/layers
  std::string mount_point;  // absolute, without symlinks; exists
  // The path that users see the mount at, where it differs from mount_point while it is being set
  // up; empty: mount_point.
  std::string shown_path;
  std::string run_dir;  // absolute; made if missing; empty: none is made
  std::vector<Profile> profiles;
  PublishPolicy publish = PublishPolicy::kComplete;
  std::chrono::seconds job_idle{600};
  std::chrono::seconds layer_keep{7 * 24 * 3600};
  WatchMode watch =
      WatchMode::kFanotify;  // the best way to see raw changes of the base; less if need be
  unsigned threads = 0;      // workers of the receive loop; 0: chosen by the number of cores
  unsigned long mount_flags =
      0;  // further MS_* flags for mount(2); nosuid and nodev are always set
};

struct DaemonError {
  int exit_code;        // one of common/exit_codes.h
  std::string message;  // one line: what, where, why, what happens now
};

// Mounts and serves until the file system is unmounted or SIGTERM or SIGINT arrives. Calls
// `on_ready` once the mount is usable. Call from a process with no other thread; logs through
// spdlog's default logger. Returns an error where it could not start, and nothing after a clean end.
std::optional<DaemonError> serve(const DaemonOptions& options,
                                 const std::function<void()>& on_ready);

}  // namespace cacheshim
