// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace cacheshim::cli {

// Each adds its command to `app`. A command that was chosen leaves its exit code in `exit_code`.
void add_mount(CLI::App& app, int& exit_code);
void add_unmount(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_job(CLI::App& app, int& exit_code);
void add_status(CLI::App& app, int& exit_code);  // status and stats

}  // namespace cacheshim::cli
