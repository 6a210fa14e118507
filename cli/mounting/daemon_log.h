// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/common.h>

#include <string>

// The daemon's log. Its lines name paths and jobs of all users. So only the daemon's user can read
// the file, and each message takes one line without control characters (common/printable.h).
namespace cacheshim::cli {

// Writes lines to stderr, as "cacheshim: LEVEL: MESSAGE".
void log_to_stderr(spdlog::level::level_enum level);

// Writes lines to RUN_DIR/log. Without a run directory, or if the file cannot be opened, there is no
// log.
void log_to_file(const std::string& run_dir);

}  // namespace cacheshim::cli
