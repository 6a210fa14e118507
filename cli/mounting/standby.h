// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/unique_fd.h"

namespace cacheshim::cli {

enum class StandbyEnd {
  kClosed,  // the mount was closed for good, in this cycle
  kDied,    // no daemon serves the mount: it died, or there never was one
};

// Waits in flock(2) while a daemon holds the lock of the run directory. If it returns kDied, `lock`
// holds that lock, if the file exists, so that no other standby takes over as well.
StandbyEnd wait_as_standby(const std::string& run_dir, const std::string& cycle, UniqueFd& lock);

}  // namespace cacheshim::cli
