// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace cacheshim::cli {

// Each adds its command to `app`. A command that was chosen leaves its exit code in `exit_code`.
void add_mount(CLI::App& app, int& exit_code);
void add_overlay(CLI::App& app, int& exit_code);
void add_unmount(CLI::App& app, int& exit_code);
void add_mount8_helpers(CLI::App& app,
                        int& exit_code);  // remount and umount-as-helper, not in the help
// `command`, which must outlive `app`, is what take_run_command() took off the command line.
void add_run(CLI::App& app, const std::vector<std::string>& command, int& exit_code);
// The same of `lock`, and of `profile learn`.
void add_lock(CLI::App& app, const std::vector<std::string>& command, int& exit_code);
void add_job(CLI::App& app, int& exit_code);
void add_status(CLI::App& app, int& exit_code);  // status and stats
void add_profile(CLI::App& app, const std::vector<std::string>& command, int& exit_code);
// Its subcommand `learn`.
void add_learn(CLI::App& profile, const std::vector<std::string>& command, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_gc(CLI::App& app, int& exit_code);  // gc and verify
void add_doctor(CLI::App& app, int& exit_code);

// Takes the COMMAND of `run`, `lock` or `profile learn` off `words`, the program's arguments: everything after "--", or
// from the first word on that is no option, nor the FILE of `lock`. Nothing for other commands.
std::vector<std::string> take_command(std::vector<std::string>& words);

// The help of these commands: its usage has the COMMAND too.
std::shared_ptr<CLI::Formatter> make_formatter_with_command();

}  // namespace cacheshim::cli
