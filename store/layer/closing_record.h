// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "common/result.h"

// That a mount has been closed for good, and by which attempt of its job (cycle), so that who stands by to
// take over knows an end from a death. A file beside the mount's run folder, RUN_DIR.closed, that
// outlives the daemon; the next one to serve removes it. Without a run folder there is no record.
namespace cacheshim {

// Written and synced when it returns.
Status record_closing(const std::string& run_dir, const std::string& cycle);
void forget_closing(const std::string& run_dir);
// The cycle on record, nothing for no record or one that cannot be read. Fields that are not known are
// passed over; a record without a cycle is that of cycle 0.
std::optional<std::string> recorded_closing(const std::string& run_dir);

}  // namespace cacheshim
