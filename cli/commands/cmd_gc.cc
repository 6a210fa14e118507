// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/configuration/units.h"
#include "cli/control_client.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

using nlohmann::json;

struct GcArguments {
  std::string mount;
  bool as_json = false;
  bool dry_run = false;
  bool repair = false;
};

std::string files_text(std::uint64_t count) { return format_count(count, "file", "files"); }

void print_evicted(const json& answer) {
  std::vector<std::vector<std::string>> rows;
  for (const json& one : answer.value("evicted", json::array())) {
    const auto ago = std::max<std::int64_t>(
        0, ::time(nullptr) - static_cast<std::int64_t>(count_of(one, "last_use")));
    rows.push_back(
        {text_of(one, "entry"), format_size(count_of(one, "bytes")),
         files_text(count_of(one, "files")),
         fmt::format("used {} ago", format_duration(std::chrono::seconds(ago))),
         text_of(one, "reason") + (one.value("young", false) ? ", space is running out" : "")});
  }
  print_table(rows);
}

int collect_garbage(const GcArguments& arguments) {
  const ControlClient client(chosen_mount(arguments.mount));
  const json answer = client.request({{"op", "gc"}, {"dry_run", arguments.dry_run}});
  if (arguments.as_json) {
    print_json(answer);
    return kExitSuccess;
  }
  if (arguments.dry_run) print_evicted(answer);
  if (!answer.value("limits", true)) {
    print_text("no limits are set: see [gc] in the configuration");
  }
  print_text("the base had {} in {}; {} {} ({}, {})", format_size(count_of(answer, "bytes_before")),
             files_text(count_of(answer, "files_before")),
             arguments.dry_run ? "to be evicted:" : "evicted",
             format_count(answer.value("evicted", json::array()).size(), "entry", "entries"),
             files_text(count_of(answer, "files")), format_size(count_of(answer, "bytes")));
  if (answer.value("over", false)) {
    print_text("the rest is above the limits, but was used within min_age");
  }
  return kExitSuccess;
}

int verify(const GcArguments& arguments) {
  const ControlClient client(chosen_mount(arguments.mount));
  const json answer = client.request({{"op", "verify"}, {"repair", arguments.repair}});
  const json damaged = answer.value("damaged", json::array());
  const auto is_left = [](const json& file) { return !file.value("repaired", false); };
  const int exit_code =
      std::any_of(damaged.begin(), damaged.end(), is_left) ? kExitFailed : kExitSuccess;
  if (arguments.as_json) {
    print_json(answer);
    return exit_code;
  }
  for (const json& file : damaged) {
    print_text("damaged: {}: {}{}", text_of(file, "path"), text_of(file, "why"),
               arguments.repair && is_left(file) ? "; it stays: see the daemon's log" : "");
  }
  for (const json& unit : answer.value("repaired", json::array())) {
    print_text("moved to trash: {}", unit.get<std::string>());
  }
  print_text("{} ({}) as on record, {} damaged, {} not on record",
             files_text(count_of(answer, "files")), format_size(count_of(answer, "bytes")),
             damaged.size(), format_count(count_of(answer, "unrecorded"), "entry", "entries"));
  return exit_code;
}

CLI::App* add_command(CLI::App& app, const char* name, const char* help,
                      const std::shared_ptr<GcArguments>& arguments) {
  CLI::App* command = app.add_subcommand(name, help);
  command
      ->add_option("--mount", arguments->mount,
                   "The mount (default: $CACHESHIM_MOUNT or /ci-cache)")
      ->type_name("M");
  command->add_flag("--json", arguments->as_json, "As JSON");
  return command;
}

}  // namespace

void add_gc(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<GcArguments>();
  CLI::App* gc =
      add_command(app, "gc", "Evict entries from the base until its limits hold", arguments);
  gc->add_flag("--dry-run", arguments->dry_run, "Only print what would be evicted");
  gc->footer(
      "Evicts whole entries, the least recently used first, until max_size, max_files, max_age and\n"
      "min_free of [gc] in the configuration hold. Keeps entries that were used within min_age (48 h),\n"
      "unless space is running out. The daemon does the same at each interval of [gc] (10 min). Only for\n"
      "root and for the user who mounted the store.");
  gc->callback([arguments, &exit_code] { exit_code = collect_garbage(*arguments); });
  auto verifying = std::make_shared<GcArguments>();
  CLI::App* check =
      add_command(app, "verify", "Verify base files against the recorded digests", verifying);
  check->add_flag("--repair", verifying->repair, "Move damaged entries to trash");
  check->footer(
      "Exit codes: 0 every file matches its record, or was repaired; 1 something is damaged. Only for\n"
      "root and for the user who mounted the store.");
  check->callback([verifying, &exit_code] { exit_code = verify(*verifying); });
}

}  // namespace cacheshim::cli
