// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mount.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/jobs/owner_rule.h"
#include "store/base/eviction_limits.h"
#include "store/base/watch_mode.h"
#include "store/profiles/profile.h"
#include "store/profiles/publish_allow.h"
#include "store/profiles/publish_policy.h"

// The daemon of one mount: what `cacheshim mount`, `cacheshim run --store` and `cacheshim overlay`
// start.
namespace cacheshim {

class RequestTrace;

// The directories of a plain overlay: absolute paths.
struct OverlayDirectories {
  std::vector<std::string> lowers;  // the first one on top
  std::string upper;                // empty, as work: read-only
  std::string work;                 // on the file system of upper
};

// The kernel's switch for FUSE over io_uring, "Y" or "N"; it is not there before Linux 6.14.
inline constexpr char kRingParameter[] = "/sys/module/fuse/parameters/enable_uring";

struct DaemonOptions {
  // Set for a plain overlay, which has no store: of what follows the profiles and all that concerns
  // stores, jobs and publishing mean nothing then.
  std::optional<OverlayDirectories> overlay;
  std::string store_dir;             // absolute
  std::string layers_dir;            // absolute; empty: STORE/.cacheshim/layers
  bool is_store_read_only = false;   // the store is only read: no records, layers and publishing
  std::string mount_point;           // absolute, without symlinks; exists
  std::string source = "cacheshim";  // shown as the source in mountinfo; not empty
  // The path that users see the mount at, where it differs from mount_point while it is being set
  // up; empty: mount_point.
  std::string shown_path;
  std::string run_dir;  // absolute; made if missing; empty: none is made
  std::vector<Profile> profiles;
  std::string cuda_defaults;  // common/cuda_defaults.h, for the processes of jobs
  PublishPolicy publish = PublishPolicy::kComplete;
  std::optional<PublishAllow> allow;  // nothing: everybody may publish
  std::chrono::seconds job_idle{600};
  std::chrono::seconds layer_keep{7 * 24 * 3600};
  // How long a process waits for what another builds, at most; 0: not at all.
  std::chrono::seconds flight_timeout{120};
  bool verify_on_open = false;
  EvictionLimits gc;
  std::chrono::seconds gc_interval{
      600};  // between looks at the limits, and for what was left behind
  // The best way to see raw changes of the base; less if need be.
  WatchMode watch = WatchMode::kFanotify;
  bool io_uring = true;  // take requests by it where the kernel lets
  unsigned threads = 0;  // workers of the receive loop; 0: chosen by the number of cores
  unsigned long mount_flags = MS_NOSUID | MS_NODEV;  // for mount(2)
  OwnerRule owners;
  // The attempt of a job that this mount belongs to, by which its closing is recorded; empty: it is not.
  std::string cycle;
  // The run directory's lock, where this process has it already: of a standby that takes over.
  std::shared_ptr<UniqueFd> run_lock;
  // Records the requests, if not null. Requires: io_uring is false.
  RequestTrace* trace = nullptr;
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
