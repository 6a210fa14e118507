// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "cli/run_environment.h"
#include "cli/text.h"
#include "cli/units.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

using nlohmann::json;

struct JobArguments {
  std::string id;
  std::string mount;
  bool as_json = false;
  bool shared_uids = false;
  bool success = false;
  bool failure = false;
  std::optional<unsigned> timeout_s;
};

ControlClient connect(const JobArguments& arguments) {
  return ControlClient(chosen_mount(arguments.mount));
}

json ask(const JobArguments& arguments, json request) {
  request["job"] = arguments.id;
  return connect(arguments).request(request);
}

std::string published(const json& answer) {
  const auto count = [&](const char* key) { return count_of(answer, key); };
  std::string text =
      fmt::format("published {} ({}, {})", format_count(count("entries"), "entry", "entries"),
                  format_count(count("files"), "file", "files"), format_size(count("bytes")));
  if (count("conflicts") > 0) {
    text += fmt::format(", {} kept back: the store has another version",
                        format_count(count("conflicts"), "entry", "entries"));
  }
  if (count("incomplete") > 0) {
    text += fmt::format(", {} left out: not complete",
                        format_count(count("incomplete"), "entry", "entries"));
  }
  return text;
}

int start(const JobArguments& arguments) {
  (void)ask(arguments, {{"op", "job-start"},
                        {"shared_uids", arguments.shared_uids},
                        {"cycle", choose_cycle("").view()},
                        {"run", false}});
  fmt::print("job {} started\n", arguments.id);
  return kExitSuccess;
}

int end(const JobArguments& arguments) {
  if (arguments.success == arguments.failure) {
    throw Failure(kExitUsage, "job end needs either --success or --failure");
  }
  const char* outcome = arguments.success ? "success" : "failure";
  const json answer = ask(arguments, {{"op", "job-end"}, {"outcome", outcome}, {"run", false}});
  if (!answer.value("ended", true)) {
    fmt::print("job {} goes on: another 'cacheshim run' of it is active and will end it\n",
               arguments.id);
  } else {
    fmt::print("job {} ended with {}: {}\n", arguments.id, outcome, published(answer));
  }
  return kExitSuccess;
}

int publish(const JobArguments& arguments) {
  const json answer = ask(arguments, {{"op", "job-publish"}});
  fmt::print("job {}: {}\n", arguments.id, published(answer));
  return kExitSuccess;
}

int discard(const JobArguments& arguments) {
  const json answer = ask(arguments, {{"op", "job-discard"}});
  fmt::print("job {}: discarded {}\n", arguments.id,
             format_count(count_of(answer, "files"), "file", "files"));
  return kExitSuccess;
}

int wait(const JobArguments& arguments) {
  const ControlClient client = connect(arguments);
  const auto start_time = Progress::Clock::now();
  Progress progress;
  const std::string what = fmt::format("waiting for job {}", arguments.id);
  const auto on_progress = [&](std::string_view, std::uint64_t, std::uint64_t) {
    const auto waited = Progress::Clock::now() - start_time;
    if (arguments.timeout_s && waited >= std::chrono::seconds(*arguments.timeout_s)) {
      progress.finish();
      throw Failure(kExitTimedOut, fmt::format("job '{}' has not ended within {} s", arguments.id,
                                               *arguments.timeout_s));
    }
    progress.update(what, 0, 0);
  };
  const json answer = client.request({{"op", "job-wait"}, {"job", arguments.id}}, on_progress);
  const std::string outcome = text_of(answer, "outcome");
  progress.finish();
  fmt::print("job {} ended, outcome: {}\n", arguments.id, outcome);
  return outcome == "success" ? kExitSuccess : kExitFailed;
}

std::string uid_text(const json& job) {
  const auto uid = job.find("uid");
  return uid != job.end() && uid->is_number() ? uid->dump() : "-";
}

int show(const JobArguments& arguments) {
  const json answer = ask(arguments, {{"op", "job-show"}});
  const json job = answer.value("job", json::object());
  if (arguments.as_json) {
    fmt::print("{}\n", job.dump());
    return kExitSuccess;
  }
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
               {"publishing", text_of(job, "publish")}});
  return kExitSuccess;
}

using Row = std::vector<std::string>;

Row split_row(std::string_view line) {
  Row cells;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find('\t', at), line.size());
    cells.emplace_back(line.substr(at, end - at));
    at = end + 1;
  }
  return cells;
}

// The table's rows of the daemon's; one of another version may have fewer columns or more.
void add_rows(const json& answer, std::vector<Row>& table) {
  constexpr const char* kColumns[] = {"job", "cycle",   "state",      "outcome",
                                      "uid", "started", "open_files", "runs"};
  constexpr std::size_t kStarted = 5;
  const json columns = answer.value("columns", json::array());
  std::vector<std::size_t> places;
  for (const char* name : kColumns) {
    places.push_back(static_cast<std::size_t>(std::find(columns.begin(), columns.end(), name) -
                                              columns.begin()));
  }
  const auto& text = answer["rows"].get_ref<const std::string&>();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    Row cells = split_row(std::string_view(text).substr(at, end - at));
    Row row;
    for (const std::size_t place : places) {
      row.push_back(place < cells.size() ? std::move(cells[place]) : "-");
    }
    row[kStarted] = format_time(std::strtoll(row[kStarted].c_str(), nullptr, 10));
    table.push_back(std::move(row));
    at = end + 1;
  }
}

// Of a daemon that does not list in short.
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
    const json answer = client.request({{"op", "job-list"}});
    fmt::print("{}\n", answer.value("jobs", json::array()).dump());
    return kExitSuccess;
  }
  std::vector<Row> table = {
      {"JOB", "CYCLE", "STATE", "OUTCOME", "UID", "STARTED", "FILES", "RUNS"}};
  const json answer = client.request({{"op", "job-list"}, {"rows", true}});
  const auto rows = answer.find("rows");
  rows != answer.end() && rows->is_string() ? add_rows(answer, table) : add_objects(answer, table);
  print_table(table);
  return kExitSuccess;
}

using Action = int (*)(const JobArguments&);

// A job command with what all of them have.
CLI::App* add_command(CLI::App& parent, const std::shared_ptr<JobArguments>& arguments,
                      const char* name, const char* help, Action action, int& exit_code) {
  CLI::App* command = parent.add_subcommand(name, help);
  command
      ->add_option("--mount", arguments->mount,
                   "The mount (default: $CACHESHIM_MOUNT or /ci-cache)")
      ->type_name("M");
  command->callback([arguments, action, &exit_code] { exit_code = action(*arguments); });
  return command;
}

CLI::App* add_with_id(CLI::App& parent, const std::shared_ptr<JobArguments>& arguments,
                      const char* name, const char* help, Action action, int& exit_code) {
  CLI::App* command = add_command(parent, arguments, name, help, action, exit_code);
  command->add_option("ID", arguments->id, "Job id: letters, digits and ._-")->required();
  command->parse_complete_callback([arguments] { check_job_id(arguments->id); });
  return command;
}

}  // namespace

void add_job(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<JobArguments>();
  CLI::App* job = app.add_subcommand("job", "Start, end and look at the jobs of a mount");
  job->require_subcommand(1);
  const auto with_id = [&](const char* name, const char* help, Action action) {
    return add_with_id(*job, arguments, name, help, action, exit_code);
  };
  with_id("start", "Make a job known before its first process", start)
      ->add_flag("--shared-uids", arguments->shared_uids, "Let further users into this job");
  CLI::App* end_command = with_id("end", "End a job; success publishes what is complete", end);
  end_command->add_flag("--success", arguments->success, "The job succeeded");
  end_command->add_flag("--failure", arguments->failure,
                        "The job failed: nothing more is published");
  add_command(*job, arguments, "list", "All jobs that the daemon knows", list, exit_code)
      ->add_flag("--json", arguments->as_json, "As JSON");
  with_id("show", "One job", show)->add_flag("--json", arguments->as_json, "As JSON");
  with_id("wait", "Wait until a job has ended; returns 0 for success, else 1", wait)
      ->add_option("--timeout", arguments->timeout_s, "Give up after S seconds, with exit code 75")
      ->type_name("S");
  with_id("publish", "Publish a job's complete entries now", publish);
  with_id("discard", "Throw a job's own files away", discard);
}

}  // namespace cacheshim::cli
