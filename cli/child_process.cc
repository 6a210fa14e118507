// SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <system_error>

#include "cli/failure.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

sigset_t watched_signals() {
  sigset_t set;
  (void)::sigemptyset(&set);
  for (const int signal : kForwarded) (void)::sigaddset(&set, signal);
  (void)::sigaddset(&set, SIGCHLD);
  return set;
}

// Blocks the watched signals, so that sigwaitinfo(2) can receive them one by one. The destructor
// restores the signal mask.
class BlockedSignals {
 public:
  BlockedSignals() : set_(watched_signals()) { (void)::sigprocmask(SIG_BLOCK, &set_, &before_); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { restore(); }

  void restore() const { (void)::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  siginfo_t wait() const {
    siginfo_t info{};
    while (::sigwaitinfo(&set_, &info) < 0) {
    }
    return info;
  }

 private:
  sigset_t set_;
  sigset_t before_{};
};

int to_exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Whether the child has exited; stores its status in `status`.
bool has_ended(pid_t child, int& status) { return ::waitpid(child, &status, WNOHANG) == child; }

}  // namespace

int run_child(const std::function<int()>& body, int death_signal, OrphanPolicy orphan) {
  const BlockedSignals signals;
  const pid_t self = ::getpid();
  const pid_t parent = ::getppid();
  const pid_t child = ::fork();
  if (child < 0) {
    throw Failure(kExitFailed, fmt::format("cannot start a process: {}",
                                           std::generic_category().message(errno)));
  }
  if (child == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, death_signal);
    if (::getppid() != self) ::_exit(kExitFailed);  // the parent exited before the prctl(2)
    signals.restore();
    ::_exit(body());
  }
  int status = 0;
  while (!has_ended(child, status)) {
    const siginfo_t info = signals.wait();
    if (info.si_signo == SIGCHLD) continue;
    // The kernel has sent this signal of the terminal to the whole foreground process group, including the child.
    if (info.si_code == SI_KERNEL) continue;
    const bool orphaned = orphan == OrphanPolicy::kKillChild && ::getppid() != parent;
    (void)::kill(child, orphaned ? SIGKILL : info.si_signo);
  }
  return to_exit_code(status);
}

int exec_command(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  (void)::execvp(arguments[0], arguments.data());  // returns only on failure
  const int error = errno;
  print_line(
      fmt::format("cannot run '{}': {}", command[0], std::generic_category().message(error)));
  return error == ENOENT ? kNotFound : kNotExecutable;
}

}  // namespace cacheshim::cli
