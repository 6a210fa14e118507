// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "cli/commands/commands.h"
#include "cli/configuration/units.h"
#include "cli/failure.h"
#include "common/exit_codes.h"
#include "locks/file_lock.h"

namespace cacheshim::cli {
namespace {

struct LockArguments {
  std::string file;
  bool shared = false;
  std::string timeout;  // empty: no time limit
  std::vector<std::string> command;
};

FileLock::Result take(FileLock& lock, const LockArguments& arguments) {
  const auto mode = arguments.shared ? FileLock::Mode::kShared : FileLock::Mode::kExclusive;
  const auto timeout = parse_timeout(arguments.timeout);
  return timeout ? lock.try_lock_for(*timeout, mode) : lock.lock(mode);
}

int do_lock(const LockArguments& arguments) {
  FileLock lock = FileLock::of_file(arguments.file);
  if (const auto refused = take(lock, arguments)) {
    const bool timed_out = refused->reason == LockError::Reason::kTimedOut;
    throw Failure(timed_out ? kExitTimedOut : kExitFailed,
                  refused->message() + "; the command was not run");
  }
  // As with flock(1), processes that the command starts and leaves running keep the lock.
  (void)::fcntl(lock.fd(), F_SETFD, 0);  // cannot fail for an open descriptor
  return run_child([&] { return exec_command(arguments.command); }, SIGTERM,
                   OrphanPolicy::kLeaveRunning);
}

}  // namespace

void add_lock(CLI::App& app, const std::vector<std::string>& command, int& exit_code) {
  auto arguments = std::make_shared<LockArguments>();
  CLI::App* lock = app.add_subcommand("lock", "Run a command while a file is locked");
  lock->add_flag("--shared", arguments->shared, "Take a shared lock (default: an exclusive lock)");
  lock->add_option("--timeout", arguments->timeout,
                   "Give up with exit code 75 after S seconds (or 500ms, 10m, …; default: wait)")
      ->type_name("S")
      ->check(timeout_problem);
  lock->add_option("FILE", arguments->file,
                   "Lock file, which is created if it does not exist; or a directory")
      ->required();
  lock->formatter(make_formatter_with_command());
  lock->footer(
      "Uses flock(2), as flock(1) and Python's filelock do. Returns COMMAND's\n"
      "own exit code, 128 + N if signal N ended it, or 75 on timeout. FILE is not removed.");
  lock->callback([arguments, &command, &exit_code] {
    if (command.empty()) {
      throw Failure(kExitUsage, "lock needs a COMMAND; see cacheshim lock --help");
    }
    arguments->command = command;
    exit_code = do_lock(*arguments);
  });
}

}  // namespace cacheshim::cli
