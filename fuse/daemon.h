// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mount.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/limit_rows.h"
#include "common/unique_fd.h"
#include "fuse/jobs/owner_mode.h"
#include "metrics/settings.h"
#include "remote/settings.h"
#include "store/base/eviction_limits.h"
#include "store/base/watch_mode.h"
#include "store/profiles/profile.h"
#include "store/profiles/publish_allow.h"
#include "store/profiles/publish_policy.h"

// The daemon of one mount. `cacheshim mount`, `cacheshim run --store` and `cacheshim overlay` start it.
namespace cacheshim {

class RequestTrace;

// The directories of a plain overlay: absolute paths.
struct OverlayDirectories {
  std::vector<std::string> lowers;  // the topmost first
  std::string upper;                // upper and work are empty for a read-only overlay
  std::string work;                 // on the file system of upper
};

// The kernel's parameter that enables FUSE over io_uring: "Y" or "N". Absent before Linux 6.14.
inline constexpr char kRingParameter[] = "/sys/module/fuse/parameters/enable_uring";

struct DaemonOptions {
  // Set for a plain overlay, which has no store. The options for profiles, stores, jobs and publishing then have no
  // effect.
  std::optional<OverlayDirectories> overlay;
  std::string store_dir;             // absolute
  std::string layers_dir;            // absolute; empty: STORE/.cacheshim/layers
  bool is_store_read_only = false;   // no records, layers or publishing
  std::string mount_point;           // absolute, without symlinks; exists
  std::string source = "cacheshim";  // shown as the source in mountinfo; not empty
  std::string run_dir;  // absolute; created if missing; empty: no run directory
  std::vector<Profile> profiles;
  std::string cuda_defaults;  // common/cuda_defaults.h, for the processes of jobs
  PublishPolicy publish = PublishPolicy::kComplete;
  bool open_files = false;            // see Publisher::open_all_files()
  std::optional<PublishAllow> allow;  // if unset, everybody may publish
  std::chrono::seconds job_idle{600};
  std::chrono::seconds layer_keep{7 * 24 * 3600};
  // The maximum time that a process waits for another process's build; 0: it does not wait.
  std::chrono::seconds flight_timeout{120};
  bool verify_on_open = false;
  LimitValues limits = default_limits();  // the limits of one user
  remote::Settings remote;                // without URLs: no remote tier
  std::string remote_helper;              // the path of cacheshim-remote
  metrics::Settings metrics;              // without an address: Prometheus is not served
  std::string metrics_helper;             // the path of cacheshim-metrics
  EvictionLimits gc;
  std::chrono::seconds gc_interval{
      600};  // the time between two maintenance rounds (StoreKeeper)
  // The preferred way to detect changes to the base by other processes. If it is unavailable, the daemon uses another
  // way.
  WatchMode watch = WatchMode::kFanotify;
  bool io_uring = true;  // whether to receive requests over io_uring if the kernel supports it
  unsigned threads = 0;  // SourceOptions::threads; 0: depends on the number of cores
  unsigned long mount_flags = MS_NOSUID | MS_NODEV;  // for mount(2)
  OwnerMode owners;
  // The job attempt that this mount belongs to. The daemon records it when the mount is closed. If `cycle` is empty,
  // the daemon records nothing.
  std::string cycle;
  // The run directory's lock if this process already holds it, as a standby does when it takes over; otherwise null.
  std::shared_ptr<UniqueFd> run_lock;
  // Records the requests, if not null. Requires: io_uring is false.
  RequestTrace* trace = nullptr;
};

struct DaemonError {
  int exit_code;        // one of common/exit_codes.h
  std::string message;  // one line: what, where, why, what happens now
};

// Mounts the file system and serves it until it is unmounted or SIGTERM, SIGINT or SIGHUP arrives. Calls `on_ready`
// once the mount is usable. Call from a process with no other thread; logs through spdlog's default logger. Returns an
// error if the daemon could not start, and nothing after a clean end.
std::optional<DaemonError> serve(const DaemonOptions& options,
                                 const std::function<void()>& on_ready);

}  // namespace cacheshim
