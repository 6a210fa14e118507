// SPDX-License-Identifier: Apache-2.0
//
// There are three processes. The original process only waits and forwards signals. Its child, the
// keeper, moves into the private namespace, starts the daemon and runs the body. If the original
// process is killed, the keeper gets SIGTERM and still cleans up. If the keeper is killed, the
// daemon gets SIGTERM and the command SIGKILL, the original process kills the remaining processes,
// and the namespace disappears with them.
#include "cli/mounting/private_run.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "cli/child_process.h"
#include "cli/failure.h"
#include "cli/mounting/daemon_process.h"
#include "cli/mounting/mount_users.h"
#include "cli/mounting/private_namespace.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "common/exit_codes.h"
#include "common/unique_fd.h"

namespace cacheshim::cli {
namespace {

constexpr int kLeftoverMs = 1000;    // for leftover processes to exit after SIGTERM
constexpr int kDaemonMs = 30'000;    // for the daemon to exit after the unmount
constexpr int kDaemonTermMs = 5000;  // for the daemon to exit after SIGTERM
constexpr int kRunPollMs = 200;

// Whether the process exits within `timeout_ms`. If the process is a child, does not reap it.
bool is_gone_within(pid_t pid, int timeout_ms) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return true;
  Progress progress;
  for (int waited = 0; waited < timeout_ms; waited += kRunPollMs) {
    struct pollfd poll = {process.get(), POLLIN, 0};
    if (::poll(&poll, 1, std::min(kRunPollMs, timeout_ms - waited)) > 0) return true;
    progress.update("waiting for processes of the private mount to end", 0, 0);
  }
  return false;
}

void signal_all(const std::vector<pid_t>& pids, int signal) {
  for (const pid_t pid : pids) (void)::kill(pid, signal);  // a process may have exited already
}

std::vector<pid_t> pids_of(const std::vector<MountUser>& processes) {
  std::vector<pid_t> pids;
  for (const MountUser& one : processes) pids.push_back(one.pid);
  return pids;
}

// /proc lists the children of each thread separately.
std::vector<pid_t> children_of(pid_t pid) {
  namespace fs = std::filesystem;
  std::vector<pid_t> children;
  std::error_code error;  // the process may exit at any time
  for (fs::directory_iterator at(fmt::format("/proc/{}/task", pid), error);
       !error && at != fs::directory_iterator(); at.increment(error)) {
    std::ifstream file(at->path() / "children");
    children.insert(children.end(), std::istream_iterator<pid_t>(file),
                    std::istream_iterator<pid_t>());
  }
  return children;
}

// Returns the processes that the command left running.
std::vector<MountUser> leftovers(pid_t daemon) {
  std::vector<pid_t> own =
      children_of(daemon);  // the process of its ConnectionGuard, and its helpers
  own.push_back(daemon);
  std::vector<MountUser> left = processes_of_this_namespace();
  std::erase_if(left, [&](const MountUser& one) {
    return std::find(own.begin(), own.end(), one.pid) != own.end();
  });
  return left;
}

// Kills processes that the command left running, because they would keep the file system busy.
void end_leftovers(pid_t daemon) {
  const std::vector<MountUser> left = leftovers(daemon);
  if (left.empty()) return;
  print_line(fmt::format(
      "the command has ended, but not its processes on the private mount: {}; ending them",
      describe_users(left)));
  signal_all(pids_of(left), SIGTERM);
  for (const MountUser& one : left) {
    if (!is_gone_within(one.pid, kLeftoverMs)) break;
  }
  signal_all(pids_of(leftovers(daemon)), SIGKILL);
}

void end_daemon(const std::string& mount_point, pid_t daemon) {
  if (::umount2(mount_point.c_str(), UMOUNT_NOFOLLOW) != 0) {
    (void)::umount2(mount_point.c_str(), MNT_DETACH);  // fails harmlessly if the daemon has unmounted
  }
  if (!is_gone_within(daemon, kDaemonMs)) {
    (void)::kill(daemon, SIGTERM);
    if (!is_gone_within(daemon, kDaemonTermMs)) (void)::kill(daemon, SIGKILL);
  }
  (void)::waitpid(daemon, nullptr, 0);
}

// Kills orphans, which have become children of this process. They exist if the keeper was killed,
// or if processes of the command have left the keeper's mount namespace.
void end_orphans() {
  for (auto left = children_of(::getpid()); !left.empty(); left = children_of(::getpid())) {
    signal_all(left, SIGTERM);
    for (const pid_t pid : left) {
      if (!is_gone_within(pid, kDaemonTermMs)) (void)::kill(pid, SIGKILL);
      (void)::waitpid(pid, nullptr, 0);
    }
  }
}

// Call before the cleanup: signals must not interrupt it.
void block_signals() {
  sigset_t all;
  (void)::sigfillset(&all);
  (void)::sigprocmask(SIG_BLOCK, &all, nullptr);
}

int keep(DaemonOptions options, pid_t caller, const std::function<int()>& body) {
  enter_private_namespace(options.mount_point);
  // The kernel clears the parent death signal if a process changes its credentials.
  (void)::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != caller) return kExitFailed;
  if (!cover_run_dir(options.run_dir)) options.run_dir.clear();
  const pid_t daemon = start_daemon(options, DaemonLife::kWithParent);
  int code = kExitFailed;
  try {
    code = body();
  } catch (const Failure& failure) {
    print_line(failure.what());
    code = failure.exit_code();
  }
  block_signals();
  end_leftovers(daemon);
  end_daemon(options.mount_point, daemon);
  return code;
}

}  // namespace

int with_private_mount(const DaemonOptions& options, const std::function<int()>& body) {
  const pid_t caller = ::getpid();
  const auto keeper = [&] {
    try {
      return keep(options, caller, body);
    } catch (const Failure& failure) {
      print_line(failure.what());
      return failure.exit_code();
    }
  };
  (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int code = run_child(keeper, SIGTERM, OrphanPolicy::kLeaveRunning);
  end_orphans();
  return code;
}

}  // namespace cacheshim::cli
