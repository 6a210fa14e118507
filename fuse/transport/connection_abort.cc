// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/connection_abort.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "store/sys/system_calls.h"

namespace cacheshim {
namespace {

// This is not SIGTERM, because a service manager sends SIGTERM to all processes of the service while the daemon still
// answers requests.
constexpr int kParentDied = SIGUSR2;

// Runs in the forked child. The parent may have had several threads at the fork, so the child makes only
// async-signal-safe calls.
[[noreturn]] void guard(int control, pid_t daemon) {
  sigset_t all;
  sigfillset(&all);
  (void)::sigprocmask(SIG_BLOCK, &all, nullptr);
  (void)::prctl(PR_SET_NAME, "cacheshim-guard");
  (void)::prctl(PR_SET_PDEATHSIG, kParentDied);
  (void)!::chdir("/");
  // Closes all other descriptors. Otherwise, this process would keep the daemon's files open: above all /dev/fuse, and
  // with it the connection.
  if (::dup2(control, 0) == -1) ::_exit(EXIT_FAILURE);
  (void)sys::close_range(1, std::numeric_limits<unsigned>::max(), 0);
  sigset_t died;
  sigemptyset(&died);
  sigaddset(&died, kParentDied);
  siginfo_t signal{};
  // The kernel names the process of the dead thread as the signal's sender. getppid() alone does not suffice: while one
  // of the daemon's threads is blocked, the daemon remains the parent.
  while (::getppid() == daemon && signal.si_pid != daemon) (void)::sigwaitinfo(&died, &signal);
  (void)abort_connection(0);
  ::_exit(EXIT_SUCCESS);
}

}  // namespace

Result<UniqueFd> open_abort(dev_t device) {
  const UniqueFd context(sys::fsopen("fusectl", FSOPEN_CLOEXEC));
  if (!context) return Errno::last();
  if (sys::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == -1) {
    return Errno::last();
  }
  const UniqueFd mount(sys::fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
  if (!mount) return Errno::last();
  const std::string file = fmt::format("{}/abort", minor(device));
  UniqueFd control(::openat(mount.get(), file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!control) return Errno::last();
  return control;
}

Status abort_connection(int control) {
  if (::write(control, "1", 1) == -1) return Errno::last();
  return {};
}

ConnectionGuard::ConnectionGuard(int control) {
  const pid_t daemon = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) guard(control, daemon);
  if (pid_ == -1) {
    spdlog::warn("cannot start the guard of the connection: {}; if this daemon is killed, calls may hang",
                 std::strerror(errno));
  }
}

ConnectionGuard::~ConnectionGuard() {
  if (pid_ == -1) return;
  (void)::kill(pid_, SIGKILL);
  (void)::waitpid(pid_, nullptr, 0);
}

}  // namespace cacheshim
