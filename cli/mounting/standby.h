// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/unique_fd.h"

namespace cacheshim::cli {

enum class StandbyEnd {
  kClosed,  // the mount was closed for good, in this cycle
  kDied,    // nobody serves it: the daemon died, or there never was one
};

// Waits, sleeping in flock(2), for as long as a daemon holds the lock of the run directory. On
// kDied `lock` is that lock, where there is one, so that no other standby takes over as well.
StandbyEnd wait_as_standby(const std::string& run_dir, const std::string& cycle, UniqueFd& lock);

}  // namespace cacheshim::cli
