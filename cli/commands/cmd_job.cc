// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/configuration/units.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "cli/run_environment.h"
#include "cli/text.h"
#include "common/exit_codes.h"
#include "common/printable_text.h"

namespace cacheshim::cli {
namespace {

using nlohmann::json;

struct JobArguments {
  std::string id;
  std::string mount;
  std::string cycle;
  bool as_json = false;
  bool shared_uids = false;
  std::optional<std::uint32_t> uid;
  bool success = false;
  bool failure = false;
  bool dry_run = false;
  std::optional<std::string> prefetch;
  std::string timeout;  // empty: no time limit
};

ControlClient connect(const JobArguments& arguments) {
  return ControlClient(chosen_mount(arguments.mount));
}

json ask(const JobArguments& arguments, json request) {
  request["job"] = arguments.id;
  return connect(arguments).request(request);
}

std::string entries_text(const json& counted) {
  return fmt::format("{} ({}, {})", format_count(count_of(counted, "entries"), "entry", "entries"),
                     format_count(count_of(counted, "files"), "file", "files"),
                     format_size(count_of(counted, "bytes")));
}

std::string published(const json& answer) {
  const auto count = [&](const char* key) { return count_of(answer, key); };
  std::string text = "published " + entries_text(answer);
  const json total = answer.value("total", json::object());
  if (count_of(total, "entries") > count("entries")) {
    text += fmt::format(" at its end, {} in all", entries_text(total));
  }
  if (count("conflicts") > 0) {
    text += fmt::format(", {} kept back: the store has another version",
                        format_count(count("conflicts"), "entry", "entries"));
  }
  if (count("incomplete") > 0) {
    text += fmt::format(", {} left out: not complete",
                        format_count(count("incomplete"), "entry", "entries"));
  }
  if (count("refused") > 0) {
    text += fmt::format(", {} kept back: the job may not publish",
                        format_count(count("refused"), "entry", "entries"));
  }
  return text;
}

// Fetches the entries of the last job `name`, and prints the result. A failure is not an error: the job can still fetch
// each entry when it needs it.
void prefetch(const JobArguments& arguments, const std::string& id, const std::string& name) {
  // Shows immediately that the job has started; main() reports a failure.
  (void)std::fflush(stdout);
  json answer;
  try {
    answer = connect(arguments).request({{"op", "job-prefetch"}, {"job", id}, {"name", name}});
  } catch (const Failure& failure) {
    print_text("job {}: {}", id, failure.what());
    return;
  }
  const std::uint64_t added = count_of(answer, "added");
  const std::uint64_t present = count_of(answer, "present");
  const std::string why = text_of(answer, "why");
  if (added + present > 0) {
    print_text("job {}: fetched {} that the last job '{}' used; {} more were there already", id,
               format_count(added, "entry", "entries"), name, present);
  } else if (why.empty()) {
    print_text("job {}: there is no pack of an earlier job '{}'", id, name);
  }
  if (!why.empty()) print_text("job {}: not all entries were fetched: {}", id, why);
}

int start(const JobArguments& arguments) {
  json request = {{"op", "job-start"},
                  {"shared_uids", arguments.shared_uids},
                  {"cycle", choose_cycle("").view()},
                  {"run", false}};
  if (arguments.uid) request["uid"] = *arguments.uid;
  const json answer = ask(arguments, std::move(request));
  const std::string id = started_job(answer, arguments.id);
  print_text("job {} started", id);
  if (arguments.prefetch) prefetch(arguments, id, *arguments.prefetch);
  return kExitSuccess;
}

int end(const JobArguments& arguments) {
  if (arguments.success == arguments.failure) {
    throw Failure(kExitUsage, "job end needs either --success or --failure");
  }
  const json answer = ask(arguments, {{"op", "job-end"},
                                      {"outcome", arguments.success ? "success" : "failure"},
                                      {"cycle", arguments.cycle},
                                      {"run", false}});
  const std::string outcome = text_of(answer, "outcome");
  const bool has_failed_run = arguments.success && outcome == "failure";
  print_text("job {} ended with {}{}: {}", arguments.id, outcome,
             has_failed_run ? ", because a 'cacheshim run' of it failed" : "", published(answer));
  return kExitSuccess;
}

std::string files_text(const json& counted) {
  return fmt::format("{}, {}", format_count(count_of(counted, "files"), "file", "files"),
                     format_size(count_of(counted, "bytes")));
}

// Prints the planned result for each entry.
void print_plan(const json& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const json& one : plan) {
    const bool would = one.value("publish", true);
    const bool is_there = would && one.contains("publish") && count_of(one, "files") == 0;
    rows.push_back({text_of(one, "entry"), would ? files_text(one) : "stays",
                    is_there ? "the base has it already: dropped from the layer"
                    : would  ? ""
                             : text_of(one, "why")});
  }
  print_table(rows);
}

int show_plan(const JobArguments& arguments, const char* op, const char* verb) {
  const json answer = ask(arguments, {{"op", op}, {"dry_run", true}});
  if (arguments.as_json) {
    print_json(answer);
    return kExitSuccess;
  }
  print_plan(answer.value("plan", json::array()));
  if (count_of(answer, "omitted") > 0) {
    print_text("and {} more", format_count(count_of(answer, "omitted"), "entry", "entries"));
  }
  print_text("job {}: would {} {}", arguments.id, verb, files_text(answer));
  if (count_of(answer, "removed") > 0) {
    print_text("job {}: would again see {} of the base that it has removed", arguments.id,
               format_count(count_of(answer, "removed"), "name", "names"));
  }
  if (count_of(answer, "open_files") > 0) {
    print_text("job {}: has {} open, which stay readable", arguments.id,
               format_count(count_of(answer, "open_files"), "file", "files"));
  }
  return kExitSuccess;
}

int publish(const JobArguments& arguments) {
  if (arguments.dry_run) return show_plan(arguments, "job-publish", "publish");
  const json answer = ask(arguments, {{"op", "job-publish"}});
  print_text("job {}: {}", arguments.id, published(answer));
  return kExitSuccess;
}

int discard(const JobArguments& arguments) {
  if (arguments.dry_run) return show_plan(arguments, "job-discard", "discard");
  const json answer = ask(arguments, {{"op", "job-discard"}});
  print_text("job {}: discarded {}", arguments.id,
             format_count(count_of(answer, "files"), "file", "files"));
  return kExitSuccess;
}

int wait(const JobArguments& arguments) {
  const ControlClient client = connect(arguments);
  const auto start_time = Progress::Clock::now();
  const auto timeout = parse_timeout(arguments.timeout);
  Progress progress;
  const std::string what = fmt::format("waiting for job {}", arguments.id);
  const auto on_progress = [&](std::string_view, std::uint64_t, std::uint64_t) {
    const auto waited = Progress::Clock::now() - start_time;
    if (timeout && waited >= *timeout) {
      progress.finish();
      throw Failure(kExitTimedOut, fmt::format("job '{}' has not ended within {} s", arguments.id,
                                               std::chrono::duration<double>(*timeout).count()));
    }
    progress.update(what, 0, 0);
  };
  const json answer = client.request({{"op", "job-wait"}, {"job", arguments.id}}, on_progress);
  const std::string outcome = text_of(answer, "outcome");
  progress.finish();
  print_text("job {} ended, outcome: {}", arguments.id, outcome);
  return outcome == "success" ? kExitSuccess : kExitFailed;
}

std::string uid_text(const json& job) {
  const auto uid = job.find("uid");
  return uid != job.end() && uid->is_number() ? uid->dump() : "-";
}

std::string layer_text(const json& layer) {
  const std::string own = entries_text(layer);
  const std::uint64_t removed = count_of(layer, "removed");
  if (removed == 0) return own;
  return fmt::format("{}; hides {} of the base", own, format_count(removed, "name", "names"));
}

int show(const JobArguments& arguments) {
  const json answer = ask(arguments, {{"op", "job-show"}});
  json job = answer.value("job", json::object());
  json layer = ask(arguments, {{"op", "job-layer"}});
  layer.erase("ok");
  if (arguments.as_json) {
    job["holds"] = std::move(layer);
    print_json(job);
    return kExitSuccess;
  }
  const std::string refused = job.value("refused", "");
  const std::string prefetched = job.value("prefetch", "");
  print_pairs({{"job", text_of(job, "job")},
               {"cycle", text_of(job, "cycle")},
               {"state", text_of(job, "state")},
               {"outcome", text_of(job, "outcome")},
               {"user id", uid_text(job)},
               {"further users", job.value("shared_uids", false) ? "allowed" : "no"},
               {"started", format_time(static_cast<std::int64_t>(count_of(job, "started")))},
               {"open files", fmt::to_string(count_of(job, "open_files"))},
               {"runs", fmt::to_string(count_of(job, "runs"))},
               {"layer", text_of(job, "layer")},
               {"holds", layer_text(layer)},
               {"publishing", text_of(job, "publish")},
               {"may publish", refused.empty() ? "yes" : "no: " + refused},
               {"prefetching", prefetched.empty() ? "no" : "as '" + prefetched + "'"}});
  return kExitSuccess;
}

using Row = std::vector<std::string>;

constexpr std::array<const char*, 8> kHeads = {"JOB", "CYCLE",   "STATE", "OUTCOME",
                                               "UID", "STARTED", "FILES", "RUNS"};
constexpr std::array<const char*, kHeads.size()> kColumns = {
    "job", "cycle", "state", "outcome", "uid", "started", "open_files", "runs"};
constexpr std::size_t kStarted = 5;
using Cells = std::array<std::string_view, kHeads.size()>;

// Returns the cells of one line in the order of kColumns. `places` has the position of each column
// in the line.
Cells cells_of(std::string_view line, const std::array<std::size_t, kHeads.size()>& places) {
  Cells cells;
  cells.fill("-");
  for (std::size_t place = 0, at = 0; at <= line.size(); ++place) {
    const std::size_t end = std::min(line.find('\t', at), line.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i] == place) cells[i] = line.substr(at, end - at);
    }
    at = end + 1;
  }
  return cells;
}

// Formats the daemon's rows as a table. A daemon of another version may have fewer or more columns.
// A table may have ten thousand jobs, so the cells are not copied to strings.
std::string table_of(const json& answer) {
  const json columns = answer.value("columns", json::array());
  std::array<std::size_t, kHeads.size()> places;
  std::array<std::size_t, kHeads.size()> widths{};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto found = std::find(columns.begin(), columns.end(), kColumns[i]);
    places[i] = static_cast<std::size_t>(found - columns.begin());
  }
  const std::string_view text = answer["rows"].get_ref<const std::string&>();
  std::map<std::string_view, std::string> times;
  std::vector<Cells> rows(1);
  std::copy(kHeads.begin(), kHeads.end(), rows.front().begin());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    Cells& row = rows.emplace_back(cells_of(text.substr(at, end - at), places));
    const auto [time, is_new] = times.try_emplace(row[kStarted]);
    if (is_new) time->second = format_time(std::strtoll(row[kStarted].data(), nullptr, 10));
    row[kStarted] = time->second;
    at = end + 1;
  }
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      table += row[i];
      if (i + 1 < row.size()) table.append(widths[i] - row[i].size() + 2, ' ');
    }
    table += '\n';
  }
  return table;
}

// Adds the jobs of a daemon that does not support the compact list.
void add_objects(const json& answer, std::vector<Row>& table) {
  for (const json& job : answer.value("jobs", json::array())) {
    table.push_back(
        {text_of(job, "job"), text_of(job, "cycle"), text_of(job, "state"), text_of(job, "outcome"),
         uid_text(job), format_time(static_cast<std::int64_t>(count_of(job, "started"))),
         fmt::to_string(count_of(job, "open_files")), fmt::to_string(count_of(job, "runs"))});
  }
}

int list(const JobArguments& arguments) {
  const ControlClient client = connect(arguments);
  if (arguments.as_json) {
    constexpr std::string_view kBegin = R"({"ok":true,"jobs":)";
    const std::string answer = client.request_text({{"op", "job-list"}});
    if (!answer.starts_with(kBegin) || !answer.ends_with("]}")) {
      throw Failure(kExitFailed,
                    fmt::format("the daemon of '{}' gave no list of jobs", client.mount()));
    }
    print_lines(printable_json(answer.substr(kBegin.size(), answer.size() - kBegin.size() - 1)) +
                "\n");
    return kExitSuccess;
  }
  const json answer = client.request({{"op", "job-list"}, {"rows", true}});
  if (answer.contains("rows") && answer["rows"].is_string()) {
    print_lines(table_of(answer));
  } else {
    std::vector<Row> table = {Row(kHeads.begin(), kHeads.end())};
    add_objects(answer, table);
    print_table(table);
  }
  return kExitSuccess;
}

using JobAction = int (*)(const JobArguments&);

// Adds a job command with the common options.
CLI::App* add_command(CLI::App& parent, const std::shared_ptr<JobArguments>& arguments,
                      const char* name, const char* help, JobAction action, int& exit_code) {
  CLI::App* command = parent.add_subcommand(name, help);
  command
      ->add_option("--mount", arguments->mount,
                   "The mount (default: $CACHESHIM_MOUNT or /ci-cache)")
      ->type_name("M");
  command->callback([arguments, action, &exit_code] { exit_code = action(*arguments); });
  return command;
}

CLI::App* add_with_id(CLI::App& parent, const std::shared_ptr<JobArguments>& arguments,
                      const char* name, const char* help, JobAction action, int& exit_code) {
  CLI::App* command = add_command(parent, arguments, name, help, action, exit_code);
  command->add_option("ID", arguments->id, "Job id: letters, digits and ._-")->required();
  command->parse_complete_callback([arguments] { check_job_id(arguments->id); });
  return command;
}

void add_end_options(CLI::App& command, JobArguments& arguments) {
  command.add_flag("--success", arguments.success, "The job succeeded");
  command.add_flag("--failure", arguments.failure, "The job failed: nothing more is published");
  command
      .add_option("--cycle", arguments.cycle,
                  "End only this attempt; fail if another attempt has begun")
      ->type_name("N");
  command.footer("One of --success and --failure is required.");
}

// Adds the options of a command that can print its plan.
void add_plan_options(CLI::App& command, JobArguments& arguments, const char* help) {
  command.add_flag("--dry-run", arguments.dry_run, help);
  command.add_flag("--json", arguments.as_json, "The output of --dry-run as JSON")
      ->needs("--dry-run");
}

constexpr const char* kPublishFooter =
    "Each complete entry goes into the base as a whole, whatever the job's policy is. Everything else\n"
    "stays in the job's layer. A job that may not publish publishes nothing.";
constexpr const char* kDiscardFooter =
    "Discards the job's layer, with everything that the job has written but not published. Base files\n"
    "that the job had removed from its view are visible again. The job continues with an empty layer.";

}  // namespace

void add_job(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<JobArguments>();
  CLI::App* job = app.add_subcommand("job", "Start, end and show jobs of a mount");
  job->require_subcommand(1);
  const auto with_id = [&](const char* name, const char* help, JobAction action) {
    return add_with_id(*job, arguments, name, help, action, exit_code);
  };
  CLI::App* starting = with_id("start", "Start a job before its first process", start);
  starting->add_flag("--shared-uids", arguments->shared_uids, "Allow other users in this job");
  starting
      ->add_option("--uid", arguments->uid,
                   "The user whose job it is (root only): nobody else can become its owner first")
      ->type_name("U");
  starting
      ->add_option(
          "--prefetch", arguments->prefetch,
          "Fetch the entries that this user's last job of this NAME used from the remote tier")
      ->type_name("NAME");
  add_end_options(*with_id("end", "End a job; success publishes complete entries", end),
                  *arguments);
  add_command(*job, arguments, "list", "List all jobs that the daemon knows", list, exit_code)
      ->add_flag("--json", arguments->as_json, "As JSON");
  with_id("show", "Show one job", show)->add_flag("--json", arguments->as_json, "As JSON");
  with_id("wait", "Wait until a job has ended; exit with 0 if it succeeded, otherwise with 1", wait)
      ->add_option("--timeout", arguments->timeout,
                   "Give up with exit code 75 after S seconds (or 500ms, 10m, …)")
      ->type_name("S")
      ->check(timeout_problem);
  CLI::App* publishing = with_id("publish", "Publish a job's complete entries now", publish);
  add_plan_options(*publishing, *arguments, "Only print what would happen to each entry, and why");
  publishing->footer(kPublishFooter);
  CLI::App* discarding = with_id("discard", "Discard a job's own files", discard);
  add_plan_options(*discarding, *arguments, "Only print what would be discarded");
  discarding->footer(kDiscardFooter);
}

}  // namespace cacheshim::cli
