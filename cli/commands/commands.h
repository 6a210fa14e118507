// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cacheshim_build.h"

namespace cacheshim::cli {

// Each function adds its command to `app`. The chosen command stores its exit code in `exit_code`.
void add_mount(CLI::App& app, int& exit_code);
void add_overlay(CLI::App& app, int& exit_code);
void add_unmount(CLI::App& app, int& exit_code);
// Adds the commands remount and umount-as-helper, which the help does not list.
void add_mount8_helpers(CLI::App& app, int& exit_code);
// `command` is the result of take_command() and must outlive `app`.
void add_run(CLI::App& app, const std::vector<std::string>& command, int& exit_code);
// For add_lock() and add_profile(), `command` is the COMMAND of `lock` and of `profile learn`.
void add_lock(CLI::App& app, const std::vector<std::string>& command, int& exit_code);
void add_job(CLI::App& app, int& exit_code);
void add_status(CLI::App& app, int& exit_code);  // adds status and stats
void add_metrics(CLI::App& app, int& exit_code);
void add_profile(CLI::App& app, const std::vector<std::string>& command, int& exit_code);
// Adds the subcommand `learn` of `profile`.
void add_learn(CLI::App& profile, const std::vector<std::string>& command, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_gc(CLI::App& app, int& exit_code);  // adds gc and verify
void add_doctor(CLI::App& app, int& exit_code);
void add_preload_path(CLI::App& app, int& exit_code);
#if CACHESHIM_HAS_REMOTE
void add_remote(CLI::App& app, int& exit_code);
#endif
// Adds the command that prints completion scripts. They contain all commands that `app` has when the command runs.
void add_completion(CLI::App& app, int& exit_code);

// Removes the COMMAND of `run`, `lock` or `profile learn` from `words`, the program's arguments, and returns it.
// COMMAND begins after "--". Without "--", it begins with the first word that is not an option, the value of an option,
// or the FILE of `lock`. Returns nothing for other commands.
std::vector<std::string> take_command(std::vector<std::string>& words);

// Returns a help formatter for these commands. Its usage line also shows the COMMAND.
std::shared_ptr<CLI::Formatter> make_formatter_with_command();

}  // namespace cacheshim::cli
