// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <time.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/configuration/units.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "common/counters.h"
#include "common/exit_codes.h"
#include "store/sys/json_text.h"

namespace cacheshim::cli {
namespace {

using nlohmann::json;

struct StatusArguments {
  std::string mount;
  bool as_json = false;
};

json parse(const ControlClient& client, const std::string& file) {
  json parsed = parse_json(client.read(file));
  if (parsed.is_object()) return parsed;
  throw Failure(kExitFailed, fmt::format("the daemon of '{}' gave a '{}' that is not JSON",
                                         client.mount(), file));
}

std::string store_text(const std::string& store) {
  struct statvfs status {};
  if (::statvfs(store.c_str(), &status) != 0) return store;
  return fmt::format("{} ({} free of {})", store,
                     format_size(std::uint64_t{status.f_bavail} * status.f_frsize),
                     format_size(std::uint64_t{status.f_blocks} * status.f_frsize));
}

std::string daemon_text(const json& status) {
  const std::int64_t started = static_cast<std::int64_t>(count_of(status, "started"));
  const std::int64_t uptime = std::max<std::int64_t>(0, ::time(nullptr) - started);
  return fmt::format("pid {}, version {}, up {}", count_of(status, "pid"),
                     text_of(status, "version"), format_duration(std::chrono::seconds(uptime)));
}

std::string policy_text(const std::string& policy) {
  if (policy == "complete") return "complete: an entry is published as soon as it is complete";
  if (policy == "end") return "end: complete entries are published when their job succeeds";
  if (policy == "never") return "never: the base stays as it is";
  return policy;
}

std::string publishing_text(const json& status) {
  const std::uint64_t full_since = count_of(status, "store_full_since");
  if (full_since == 0) return policy_text(text_of(status, "publish"));
  const std::int64_t stopped =
      std::max<std::int64_t>(0, ::time(nullptr) - static_cast<std::int64_t>(full_since));
  return fmt::format("stopped for {}: the store is full; continues when more space is free",
                     format_duration(std::chrono::seconds(stopped)));
}

std::string publishers_text(const std::string& publishers) {
  return publishers == "every local user" ? publishers + " may publish" : publishers;
}

// Describes how soon a change to the base by a process outside the mount becomes visible.
std::string freshness_text(const json& status) {
  const std::string watch = text_of(status, "watch");
  const std::string here = watch == "none" ? "seen within 1 s" : "seen immediately, by " + watch;
  if (status.value("base_is_local", false)) return here;
  return here + "; those of other machines within 1 s";
}

std::string rename_text(const std::string& support) {
  if (support == "flags") return "by renameat2";
  if (support == "links") return "by link and unlink, since the file system lacks flags of renameat2";
  if (support == "none") return "impossible: the file system lacks both flags of renameat2 and hard links";
  return "not tried";
}

// Describes how the daemon gives names to new files of the base and of the layers.
std::string renames_text(const json& status) {
  const json renames = status.value("renames", json::object());
  const std::string base = rename_text(text_of(renames, "base"));
  const std::string layers = rename_text(text_of(renames, "layers"));
  return base == layers ? base : fmt::format("{}; in layers {}", base, layers);
}

// Describes which processes exclude each other by lock files.
std::string locks_text(const json& status) {
  if (text_of(status, "locks") != "this mount") return "as the store's file system supports them";
  return "only among the processes of this mount: the store's file system supports no locks";
}

std::string joined(const json& names) {
  std::string text;
  for (const json& name : names) {
    if (name.is_string()) text += (text.empty() ? "" : ", ") + name.get<std::string>();
  }
  return text.empty() ? "none" : text;
}

std::string rejected_text(const json& status) {
  std::string text;
  for (const json& entry : status.value("rejected", json::array())) {
    text += fmt::format("{}{}, {}", text.empty() ? "" : "; ", text_of(entry, "entry"),
                        rejection_text(entry));
  }
  return text.empty() ? "none" : text;
}

// Returns the uids of the excluded builders, or "" if there are none. Other users' processes do not wait for the builds
// of these users.
std::string excluded_text(const json& status) {
  std::string text;
  for (const json& uid : status.value("excluded_builders", json::array())) {
    text += fmt::format("{}uid {}", text.empty() ? "" : ", ", uid.dump());
  }
  return text;
}

// Describes one limit, for example "1200 used, at most 900 by one user, of 4096; 3 refused".
std::string limit_text(const json& limit) {
  const bool is_size = text_of(limit, "limit").ends_with("_size");
  const auto amount = [&](const char* key) {
    const std::uint64_t count = count_of(limit, key);
    return is_size ? format_size(count) : fmt::to_string(count);
  };
  std::string text = amount("used") + " used";
  if (count_of(limit, "capacity") > 0) text += " of " + amount("capacity");
  text += fmt::format(", at most {} by one user, ", amount("highest"));
  text += count_of(limit, "most") > 0 ? "of " + amount("most") : "without a limit";
  const std::uint64_t refused = count_of(limit, "refused");
  return refused == 0 ? text : text + fmt::format("; {} refused", refused);
}

// Describes the remote tier, for example "redis://cache: used, 1200 entries, 3 to be sent".
std::string remote_text(const json& remote) {
  const std::string urls = joined(remote.value("urls", json::array()));
  const std::string unsent = fmt::format("{} to be sent", count_of(remote, "unsent"));
  if (remote.value("used", false)) {
    return fmt::format("{}: used, {}, {}", urls,
                       format_count(count_of(remote, "known"), "entry", "entries"), unsent);
  }
  const std::int64_t unused =
      ::time(nullptr) - static_cast<std::int64_t>(count_of(remote, "unused_since"));
  return fmt::format("{}: not used for {}, {}: {}", urls,
                     format_duration(std::chrono::seconds(std::max<std::int64_t>(0, unused))),
                     unsent, text_of(remote, "why"));
}

std::string metrics_text(const json& metrics) {
  const std::string listen = text_of(metrics, "listen");
  if (!metrics.value("problem", json()).is_string())
    return fmt::format("served on http://{}/metrics", listen);
  return fmt::format("not served on {}: {}", listen, text_of(metrics, "problem"));
}

void show_status(const StatusArguments& arguments) {
  const ControlClient client(chosen_mount(arguments.mount));
  const json status = parse(client, "status");
  if (arguments.as_json) {
    print_json(status);
    return;
  }
  std::vector<std::pair<std::string, std::string>> rows{
      {"mount", text_of(status, "mount")},
      {"store", store_text(text_of(status, "store"))},
      {"layers", text_of(status, "layers")},
      {"daemon", daemon_text(status)},
      {"publishing", publishing_text(status)},
      {"who may publish", publishers_text(text_of(status, "publishers"))},
      {"raw changes", freshness_text(status)},
      {"requests", "come over " + text_of(status, "requests")},
      {"locks", locks_text(status)},
      {"renames", renames_text(status)},
      {"jobs active", fmt::to_string(count_of(status, "jobs_active"))},
      {"profiles", joined(status.value("profiles", json::array()))},
      {"rejected", rejected_text(status)},
      {"run directory", text_of(status, "run_dir")}};
  const json remote = status.value("remote", json());
  if (remote.is_object()) rows.emplace_back("remote tier", remote_text(remote));
  const json metrics = status.value("metrics", json());
  if (metrics.is_object()) rows.emplace_back("metrics", metrics_text(metrics));
  const std::string excluded = excluded_text(status);
  if (!excluded.empty()) rows.emplace_back("builders excluded", excluded);
  for (const json& limit : status.value("limits", json::array())) {
    rows.emplace_back(text_of(limit, "limit"), limit_text(limit));
  }
  print_pairs(rows);
}

std::string counter_text(CounterUnit unit, const json& value) {
  if (unit == CounterUnit::kBytes && value.is_number_unsigned()) {
    return fmt::format("{} ({})", value.dump(), format_size(value.get<std::uint64_t>()));
  }
  return value.dump();
}

void show_stats(const StatusArguments& arguments) {
  const ControlClient client(chosen_mount(arguments.mount));
  const json stats = parse(client, "stats");
  if (arguments.as_json) {
    print_json(stats);
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const CounterRow& row : kCounterRows) {
    const auto value = stats.find(row.name);
    if (value == stats.end()) continue;
    rows.push_back({std::string(row.name), counter_text(row.unit, *value), std::string(row.help)});
  }
  print_table(rows);
}

using StatusAction = void (*)(const StatusArguments&);

void add_command(CLI::App& app, const char* name, const char* help, StatusAction action,
                 int& exit_code) {
  auto arguments = std::make_shared<StatusArguments>();
  CLI::App* command = app.add_subcommand(name, help);
  command
      ->add_option("--mount", arguments->mount,
                   "The mount (default: $CACHESHIM_MOUNT or /ci-cache)")
      ->type_name("M");
  command->add_flag("--json", arguments->as_json, "As JSON");
  command->callback([arguments, action, &exit_code] {
    action(*arguments);
    exit_code = kExitSuccess;
  });
}

}  // namespace

void add_status(CLI::App& app, int& exit_code) {
  add_command(app, "status", "Show the mount, its daemon, and who may publish", show_status,
              exit_code);
  add_command(app, "stats", "Show the counters since the mount", show_stats, exit_code);
}

}  // namespace cacheshim::cli
