// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/unique_fd.h"

namespace cacheshim::cli {

enum class StandbyEnd {
  kClosed,  // the mount was closed for good, in this cycle
  kDied,    // no daemon serves the mount: the last daemon died, or there never was one
};

// Waits in flock(2) while a daemon holds the lock of the run directory. On kDied, `lock` holds that
// lock, so that no other standby takes over as well; `lock` is unchanged if the lock's file does
// not exist. Throws Failure (unavailable) if `run_dir` is empty, or if the file cannot be locked.
StandbyEnd wait_as_standby(const std::string& run_dir, const std::string& cycle, UniqueFd& lock);

}  // namespace cacheshim::cli
