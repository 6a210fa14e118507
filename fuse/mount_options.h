// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "common/limit_rows.h"
#include "fuse/jobs/owner_mode.h"
#include "fuse/jobs/view_filter.h"
#include "metrics/settings.h"
#include "remote/settings.h"
#include "store/base/eviction_limits.h"
#include "store/base/watch_mode.h"
#include "store/profiles/publish_allow.h"
#include "store/profiles/publish_policy.h"

namespace cacheshim {

struct MountOptions {
  std::string mount_point;  // where users see the mount
  std::string layers_dir;  // for answers of the control directory; "" if there are no layers
  std::string store_dir;
  std::string run_dir;
  std::string routes;  // for processes that cannot read run_dir
  PublishPolicy publish;
  WatchMode watch;
  std::chrono::seconds job_idle;
  std::chrono::seconds layer_keep;
  std::chrono::seconds flight_timeout;  // 0: no single flight
  OwnerMode owners;
  std::string cycle;  // the job attempt that the mount belongs to; recorded when the mount is closed
  EvictionLimits gc;
  std::chrono::seconds gc_interval;
  const DirectAccess* direct = nullptr;  // must outlive the mount
  bool open_files = false;               // see Publisher::open_all_files()
  std::optional<PublishAllow> allow;
  bool verify_on_open;
  LimitValues limits{};  // the limits of one user
  remote::Settings remote{};
  std::string remote_helper{};  // the path of cacheshim-remote
  metrics::Settings metrics{};
  std::string metrics_helper{};  // the path of cacheshim-metrics
};

// The result of FUSE_INIT.
struct Protocol {
  unsigned minor = 0;
  bool can_pass_through = false;  // the kernel can read and write files by itself
  bool uses_io_uring = false;     // requests arrive over io_uring
};

}  // namespace cacheshim
