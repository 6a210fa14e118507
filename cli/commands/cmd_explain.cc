// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/cache_path.h"
#include "cli/commands/commands.h"
#include "cli/configuration/units.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/run_environment.h"
#include "cli/text.h"
#include "common/exit_codes.h"
#include "store/sys/json_text.h"

namespace cacheshim::cli {
namespace {

using nlohmann::json;

struct ExplainArguments {
  std::string path;
  std::string job;
  std::string mount;
  bool as_json = false;
};

// Returns the job that the environment names or, if it names none, the user's own job, uid-UID. The
// daemon may find another job, because it also checks the cgroup and the parent processes.
std::string own_job() {
  const JobId job = job_from_environment(ProcessEnvironment());
  return job.empty() ? fmt::format("uid-{}", ::getuid()) : std::string(job.view());
}

std::string source_text(const json& answer) {
  const std::string from = text_of(answer, "from");
  if (from == "base") return "the base: published, or there before";
  if (from == "layer") return "the job's own layer";
  return "nowhere: neither the base nor the job's layer has it";
}

std::string time_text(const json& event) {
  return format_time(static_cast<std::int64_t>(event.value("time", 0.0)));
}

std::string publisher_text(const json& published) {
  const bool has_user = published.contains("uid") && published["uid"].is_number();
  // Every job has a user, so this is no job.
  if (!has_user && text_of(published, "job") == "remote") {
    return fmt::format("{}, from the remote tier, to {}", time_text(published),
                       text_of(published, "node"));
  }
  const std::string user =
      has_user ? fmt::format("uid {}, ", published["uid"].get<unsigned>()) : "";
  return fmt::format("{} by job {} (cycle {}), {}on {}", time_text(published),
                     text_of(published, "job"), text_of(published, "cycle"), user,
                     text_of(published, "node"));
}

std::string digest_text(const json& answer) {
  const std::string now = text_of(answer, "xxh3");
  const json published = answer.value("published", json::object());
  const std::string recorded = text_of(published, "xxh3");
  if (now == "-" || recorded == "-") return now;
  return now + (now == recorded ? " (as on record)" : ", on record " + recorded);
}

std::string flight_text(const json& flight, const std::string& path) {
  const std::string leader_job = text_of(flight, "leader_job");
  std::string text = fmt::format("by process {} of job {}", count_of(flight, "leader"), leader_job);
  if (flight.value("remote", false)) {
    text = "by another machine, or it is being fetched from the remote tier";
  } else if (count_of(flight, "leader") == 0) {
    text = "by another daemon of this store";
  }
  if (text_of(flight, "path") != path) text = text_of(flight, "path") + " " + text;
  const std::uint64_t waiting = count_of(flight, "waiting");
  if (waiting == 0) return text + "; no process waits for it";
  std::string jobs;
  for (const json& job : flight.value("waiting_jobs", json::array())) {
    jobs += (jobs.empty() ? "" : ", ") + job.get<std::string>();
  }
  return fmt::format("{}; {} for it, of {}", text,
                     waiting == 1 ? "1 process waits" : fmt::format("{} processes wait", waiting),
                     jobs);
}

void print_answer(const json& answer) {
  const json job = answer.value("job", json());
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"path", text_of(answer, "path")},
      {"job", job.is_string() ? job.get<std::string>() : "none that is active: the base alone"},
      {"comes from", source_text(answer)}};
  if (answer.contains("size")) {
    pairs.emplace_back("size", format_size(count_of(answer, "size")));
    pairs.emplace_back("xxh3-128", digest_text(answer));
  }
  const std::string profile = text_of(answer, "profile");
  pairs.emplace_back("profile", profile == "-" ? "none: an unknown cache"
                                               : fmt::format("{} (evidence: {})", profile,
                                                             text_of(answer, "evidence")));
  if (answer.contains("class")) pairs.emplace_back("class", text_of(answer, "class"));
  pairs.emplace_back("entry", text_of(answer, "entry"));
  if (answer.contains("published")) {
    pairs.emplace_back("published", publisher_text(answer["published"]));
  } else if (text_of(answer, "from") == "base") {
    pairs.emplace_back("published", "not on record: older than the records, or put there by hand");
  }
  if (answer.contains("rejected")) {
    pairs.emplace_back("rejected", rejection_text(answer["rejected"]));
  }
  if (answer.contains("gone")) {
    const json& gone = answer["gone"];
    pairs.emplace_back("gone", fmt::format("{}, {}: {}", time_text(gone), text_of(gone, "event"),
                                           text_of(gone, "reason")));
  }
  if (answer.contains("not_published")) {
    pairs.emplace_back("not published", text_of(answer, "not_published"));
  }
  for (const json& flight : answer.value("flights", json::array())) {
    pairs.emplace_back("being built", flight_text(flight, text_of(answer, "path")));
  }
  if (answer.contains("hidden")) pairs.emplace_back("base hidden", text_of(answer, "hidden"));
  print_pairs(pairs);
}

void explain(const ExplainArguments& arguments) {
  const ControlClient client(chosen_mount(arguments.mount));
  const json status = parse_json(client.read("status"));
  const auto found =
      find_cache_path(arguments.path, client.mount(), text_of(status, "store"), client.profiles());
  if (!found) {
    throw Failure(kExitUsage,
                  fmt::format("'{}' is neither below the mount '{}' or its store nor in a cache's default path",
                              arguments.path, client.mount()));
  }
  std::string job = arguments.job.empty() ? found->job : arguments.job;
  if (job.empty()) job = own_job();
  check_job_id(job);
  nlohmann::ordered_json request = {{"op", "explain"}, {"job", job}};
  put_name(request, "path", found->path);
  const json answer = client.request(request);
  if (arguments.as_json) {
    print_json(answer);
  } else {
    print_answer(answer);
  }
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* command = app.add_subcommand(
      "explain",
      "Show a file's origin and publisher, or why it is not published, and what hides it");
  command
      ->add_option("PATH", arguments->path,
                   "Path below the mount or the store, a cache's default path, or triton/KEY/NAME")
      ->required();
  command
      ->add_option("--job", arguments->job,
                   "Explain the path as this job sees it (default: the caller's job)")
      ->type_name("ID");
  command
      ->add_option("--mount", arguments->mount,
                   "The mount (default: $CACHESHIM_MOUNT or /ci-cache)")
      ->type_name("M");
  command->add_flag("--json", arguments->as_json, "As JSON");
  command->callback([arguments, &exit_code] {
    explain(*arguments);
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
