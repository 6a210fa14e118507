// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/unique_fd.h"

namespace cacheshim::cli {

enum class StandbyEnd {
  kClosed,  // the mount was closed for good, in this cycle
  kDied,    // no daemon serves it: it died, or there never was one
};

// Sleeps in flock(2) as long as a daemon holds the lock of the run directory. On kDied `lock` is
// that lock, if it exists, so that no other standby also takes over.
StandbyEnd wait_as_standby(const std::string& run_dir, const std::string& cycle, UniqueFd& lock);

}  // namespace cacheshim::cli
