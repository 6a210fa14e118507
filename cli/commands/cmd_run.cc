// SPDX-License-Identifier: Apache-2.0
//
// A job must never fail because of cacheshim. If there is no mount, or the mount denies access, the command runs
// without the cache, and `run` prints one line about it. A missing mount is an error only with CACHESHIM_STRICT=1, or
// with --store, which requests a mount for this command alone.
#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/child_process.h"
#include "cli/commands/commands.h"
#include "cli/configuration/setup.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/mounting/mount_point.h"
#include "cli/mounting/private_run.h"
#include "cli/paths.h"
#include "cli/run_environment.h"
#include "common/exit_codes.h"
#include "common/names.h"

namespace cacheshim::cli {
namespace {

using nlohmann::json;

constexpr long kFuseMagic = 0x65735546;

struct RunArguments {
  std::string mount;
  std::string store;
  std::string job;
  std::string cycle;
  bool shared_uids = false;
  std::vector<std::string> command;
};

struct Run {
  RunArguments arguments;
  std::string mount;  // the mount point that the command uses
  std::string library;
  JobId job;
  JobId cycle;
};

int run_command(const Run& run, OrphanPolicy orphan) {
  return run_child([&] { return exec_command(run.arguments.command); }, SIGKILL, orphan);
}

// Whether the mount is one job's view that is bound into a container. Such a view has no control
// directory, so the command uses the view without starting a job.
bool is_bound_view(const std::string& mount) {
  struct statfs status {};
  if (::statfs(mount.c_str(), &status) != 0 || status.f_type != kFuseMagic) return false;
  const std::string control = mount + "/" + std::string(kControlName);
  return ::access(control.c_str(), F_OK) != 0 && errno == ENOENT;
}

// Starts the run's job and returns its id. If the caller may not use this job, the daemon starts a separate job for the
// caller, and the function returns that job's id.
JobId start_job(const Run& run) {
  const ControlClient client(run.mount);
  const json answer = client.request({{"op", "job-start"},
                                      {"job", run.job.view()},
                                      {"cycle", run.cycle.view()},
                                      {"shared_uids", run.arguments.shared_uids},
                                      {"run", true}});
  return JobId::from_text(started_job(answer, std::string(run.job.view())));
}

void end_job(const Run& run, bool success) {
  try {
    const ControlClient client(run.mount);
    (void)client.request({{"op", "job-end"},
                          {"job", run.job.view()},
                          {"outcome", success ? "success" : "failure"},
                          {"run", true}});
  } catch (const Failure& failure) {
    print_line(
        fmt::format("cannot end job '{}': {}; its layer is kept", run.job.view(), failure.what()));
  }
}

void fail_if_required(const Run& run, const std::string& why) {
  if (is_switched_on(kStrictVariable) || !run.arguments.store.empty()) {
    throw Failure(kExitUnavailable, why + "; the command was not run");
  }
}

// Runs the command with CACHESHIM_DISABLE=1, because the job's script may preload the library.
int run_without_cache(const Run& run, const std::string& why, OrphanPolicy orphan) {
  fail_if_required(run, why);
  print_line(why + "; running the command without the cache");
  (void)::setenv(std::string(kDisableVariable).c_str(), "1", 1);
  return run_command(run, orphan);
}

void prepare_environment(const Run& run) {
  export_job(run.mount, run.job, run.arguments.cycle);
  if (preload(run.library)) return;
  const std::string why = fmt::format("cannot preload '{}'", run.library);
  fail_if_required(run, why);
  print_line(why + "; only paths under the mount are cached");
}

int run_on_mount(Run& run, OrphanPolicy orphan) {
  if (is_bound_view(run.mount)) {
    prepare_environment(run);
    return run_command(run, orphan);
  }
  try {
    run.job = start_job(run);
  } catch (const Failure& failure) {
    return run_without_cache(run, failure.what(), orphan);
  }
  int code = kExitUnavailable;
  try {
    prepare_environment(run);
    code = run_command(run, orphan);
  } catch (const Failure&) {
    end_job(run, false);
    throw;
  }
  end_job(run, code == 0);
  return code;
}

int run_on_store(Run& run, const std::string& shipped_profiles) {
  DaemonArguments arguments;
  arguments.store = run.arguments.store;
  DaemonOptions options = make_daemon_options(arguments, shipped_profiles);
  check_apart(resolve_path(run.mount), "store", options.store_dir);
  options.mount_point = run.mount;
  options.run_dir = run_dir(run.mount);
  options.metrics = {};  // [metrics] names one address, which belongs to the machine's mount
  return with_private_mount(options, [&] { return run_on_mount(run, OrphanPolicy::kKillChild); });
}

int do_run(const RunArguments& arguments) {
  const Installation installation = find_installation();
  Run run{arguments, "", installation.library, choose_job(arguments.job),
          choose_cycle(arguments.cycle)};
  try {
    run.mount = arguments.store.empty() ? chosen_mount(arguments.mount)
                                        : chosen_mount_point(arguments.mount);
  } catch (const Failure& failure) {
    return run_without_cache(run, failure.what(), OrphanPolicy::kLeaveRunning);
  }
  run.mount = std::filesystem::absolute(run.mount).lexically_normal();
  if (run.mount.size() > 1 && run.mount.back() == '/') run.mount.pop_back();
  if (run.arguments.store.empty()) return run_on_mount(run, OrphanPolicy::kLeaveRunning);
  return run_on_store(run, installation.profiles);
}

// The options of run, lock and profile learn that may have their value in a separate word.
constexpr std::string_view kWithValue[] = {"--mount",   "--store", "--job",      "--cycle",
                                           "--timeout", "--name",  "--variable", "--cache"};

class FormatterWithCommand final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = Formatter::make_usage(app, std::move(name));
    return usage.insert(usage.find_last_not_of('\n') + 1, " [--] COMMAND...");
  }
};

bool takes_next_word(const std::string& option) {
  return std::find(std::begin(kWithValue), std::end(kWithValue), option) != std::end(kWithValue);
}

}  // namespace

std::vector<std::string> take_command(std::vector<std::string>& words) {
  const bool is_lock = !words.empty() && words.front() == "lock";
  const bool is_learn = words.size() > 1 && words[0] == "profile" && words[1] == "learn";
  if (words.empty() || (words.front() != "run" && !is_lock && !is_learn)) return {};
  std::size_t end = is_learn ? 2 : 1;
  const auto skip_options = [&] {
    while (end < words.size() && words[end].size() > 1 && words[end].front() == '-') {
      if (words[end] == "--") break;
      end += takes_next_word(words[end]) ? 2U : 1U;
    }
  };
  skip_options();
  if (is_lock) {
    ++end;  // skips FILE
    skip_options();
  }
  end = std::min(end, words.size());
  const bool separated = end < words.size() && words[end] == "--";
  const auto at = words.begin() + static_cast<std::ptrdiff_t>(end);
  std::vector<std::string> command(at + (separated ? 1 : 0), words.end());
  words.erase(at, words.end());
  return command;
}

std::shared_ptr<CLI::Formatter> make_formatter_with_command() {
  return std::make_shared<FormatterWithCommand>();
}

void add_run(CLI::App& app, const std::vector<std::string>& command, int& exit_code) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* run = app.add_subcommand("run", "Run a command as one job of a mount");
  run->add_option("--mount", arguments->mount, "The mount (default: $CACHESHIM_MOUNT or /ci-cache)")
      ->type_name("M");
  run->add_option("--store", arguments->store,
                  "Mount this store at --mount, visible only to COMMAND")
      ->type_name("DIR");
  run->add_option("--job", arguments->job, "Job id (default: the scheduler's id, or a new one)")
      ->type_name("ID");
  run->add_option("--cycle", arguments->cycle,
                  "The job's attempt (default: the scheduler's attempt, or 0)")
      ->type_name("N");
  run->add_flag("--shared-uids", arguments->shared_uids, "Allow other users in this job");
  run->formatter(make_formatter_with_command());
  run->footer(
      "Returns COMMAND's own exit code, 128 + N if signal N ended it, or 127 if it does not exist.\n"
      "This code determines the job's outcome: success publishes complete entries. Without a mount,\n"
      "COMMAND still runs, but without the cache; CACHESHIM_STRICT=1 makes that an error (69).\n"
      "With --store, processes that COMMAND leaves behind are killed when COMMAND has ended.");
  run->callback([arguments, &command, &exit_code] {
    if (command.empty()) throw Failure(kExitUsage, "run needs a COMMAND; see cacheshim run --help");
    arguments->command = command;
    exit_code = do_run(*arguments);
  });
}

}  // namespace cacheshim::cli
