// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cacheshim_build.h"
#include "cli/commands/commands.h"
#include "cli/failure.h"
#include "cli/mounting/mount_helper.h"
#include "cli/paths.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

constexpr const char* kDescription =
    "cacheshim: one build and kernel cache for many jobs and users at once.\n\n"
    "A store is a plain directory of caches (triton/, pip/, ...). cacheshim shows it at a mount\n"
    "point, where every job sees the shared entries and a writable layer of its own. When a job\n"
    "completes an entry, the whole entry is published into the store; the first writer wins.";

constexpr const char* kFooter = R"(Examples:
  cacheshim mount --store /data/ci-cache /ci-cache     serve a store on this machine (root)
  cacheshim run python train.py                        run one command as a job
  cacheshim run --store ~/cache python train.py        the same in a private mount, without root
  cacheshim status                                     show what is mounted and who may publish
  cacheshim job end 4711 --success                     end a job and publish its complete entries
  cacheshim lock build.lock make                       run a command under a lock
  cacheshim explain ~/.triton/cache/KEY/k.cubin        show where a file comes from and who published it
  cacheshim profile learn --variable X_CACHE -- x      draft a profile from what x does in its cache
  cacheshim doctor                                     report problems of this machine and their solutions
  cacheshim gc --dry-run                               list what the limits would evict
  cacheshim unmount /ci-cache                          end the mount
  cacheshim overlay -o lowerdir=/a:/b,upperdir=/u,workdir=/w /mnt   mount an overlay without a store

Exit codes:
  0   success
  1   the operation failed
  2   incorrect usage: unknown option or configuration key, invalid job id
  69  mount or store not available
  75  timed out
  run and lock return their command's own code

Environment:
  CACHESHIM_MOUNT     the mount (default: /ci-cache)
  CACHESHIM_JOB       job id (default: that of SLURM, GitHub Actions, GitLab, Jenkins, PBS or LSF)
  CACHESHIM_CYCLE     the job's attempt (default: the scheduler's)
  CACHESHIM_PUBLISH   never, end or complete: restrict publishing for this job
  CACHESHIM_STRICT=1  fail instead of running without the cache
  CACHESHIM_DISABLE=1 run as if cacheshim were not installed
  CACHESHIM_LOG       file for the preloaded library's messages (default: stderr)
  CACHESHIM_ROUTES    /PATH=NAME:...: more paths to redirect to the mount
  CACHESHIM_EXEC=leave   do not preload children whose environment has no LD_PRELOAD
  CACHESHIM_CUDA_EAGER, CACHESHIM_CUDA_MATCH, CACHESHIM_CUDA_REPORT   see man cacheshim-cuda

Configuration: /etc/cacheshim/cacheshim.toml and profiles.d/*.toml beside it for root,
~/.config/cacheshim/ (or XDG_CONFIG_HOME/cacheshim/) for others. See man cacheshim.toml.)";

// Returns the commands that CLI11 has recognized, for example "cacheshim job end".
std::string chosen_command(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* command : app.get_subcommands()) name += " " + chosen_command(*command);
  return name;
}

// Returns the first word that neither the program nor the chosen command accepts, or "".
std::string find_unknown_word(const CLI::App& app) {
  const auto left = app.remaining(/*recurse=*/true);
  return left.empty() ? "" : left.front();
}

// CLI11 reports --help and --version as errors with exit code 0. All its other errors are usage
// errors.
int report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  std::string message = error.what();
  const std::string unknown = find_unknown_word(app);
  if (app.get_subcommands().empty() && !unknown.empty()) {
    message = fmt::format("unknown command or option '{}'", unknown);
  } else if (unknown.starts_with('-')) {
    message = fmt::format("unknown option '{}'", unknown);  // CLI11 may report a missing argument instead
  }
  for (char& c : message) {
    if (c == '\n') c = ' ';
  }
  print_line(fmt::format("{}; see {} --help", message, chosen_command(app)));
  return kExitUsage;
}

int run_program(std::vector<std::string> words) {
  int exit_code = kExitUsage;
  const std::vector<std::string> command = take_command(words);
  std::reverse(words.begin(), words.end());  // the order that CLI11 expects
  CLI::App app(kDescription, "cacheshim");
  app.set_version_flag("--version", "cacheshim " CACHESHIM_VERSION);
  app.require_subcommand(1);
  add_mount(app, exit_code);
  add_overlay(app, exit_code);
  add_unmount(app, exit_code);
  add_mount8_helpers(app, exit_code);
  add_run(app, command, exit_code);
  add_lock(app, command, exit_code);
  add_job(app, exit_code);
  add_status(app, exit_code);
  add_metrics(app, exit_code);
  add_explain(app, exit_code);
  add_profile(app, command, exit_code);
  add_gc(app, exit_code);
#if CACHESHIM_HAS_REMOTE
  add_remote(app, exit_code);
#endif
  add_doctor(app, exit_code);
  add_preload_path(app, exit_code);
  add_completion(app, exit_code);
  app.footer(kFooter);  // last, so that the commands do not inherit it
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, error);
  } catch (const Failure& failure) {
    print_line(failure.what());
    return failure.exit_code();
  } catch (const std::exception& error) {
    print_line(fmt::format("unexpected failure: {}", error.what()));
    return kExitFailed;
  }
  if (std::fflush(stdout) != 0) {
    print_line("cannot write the output");
    return kExitFailed;
  }
  return exit_code;
}

}  // namespace
}  // namespace cacheshim::cli

// The mark (kProgramMark) makes the preloaded library do nothing in this program: a job's script
// may preload the library into every program that it runs, including this one.
extern "C" {
[[gnu::visibility("default"), gnu::used]] extern const char cacheshim_program_mark;
const char cacheshim_program_mark = 0;
}

int main(int argc, char** argv) {
  // If SIGCHLD were inherited as ignored, wait(2) would not report our children.
  (void)::signal(SIGCHLD, SIG_DFL);
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (argc > 0 && cacheshim::cli::is_mount_helper(argv[0])) {
    words = cacheshim::cli::words_of_mount_helper(words, cacheshim::cli::is_real_root());
  } else if (argc > 0 && cacheshim::cli::is_umount_helper(argv[0])) {
    words = cacheshim::cli::words_of_umount_helper(words);
  }
  return cacheshim::cli::run_program(std::move(words));
}
