// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "common/result.h"

// Records that a mount has been closed on purpose, and in which cycle (attempt) of its job. With this record, a standby
// can distinguish the end of a mount from the death of its daemon. The file, RUN_DIR.closed, is beside the mount's run
// directory and outlives the daemon. A daemon that reopens the mount removes the file, and so does the next daemon that
// serves the mount. Without a run directory, there is no record.
namespace cacheshim {

// After success, the file has its final name and its contents are synced, but its directory is not synced.
Status record_closing(const std::string& run_dir, const std::string& cycle);
void forget_closing(const std::string& run_dir);
// Returns the recorded cycle; nothing if there is no readable record. Skips unknown fields. Returns
// "0" for a record without a cycle.
std::optional<std::string> recorded_closing(const std::string& run_dir);

}  // namespace cacheshim
