// SPDX-License-Identifier: Apache-2.0
//
// The daemon reports through a pipe: "R" when its mount is usable, or its exit code and a one-line message if it cannot
// start. Until it has reported, the daemon gets SIGTERM when the command that started it exits, so that an interrupted
// `mount` leaves no daemon and no mount.
#include "cli/mounting/daemon_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string>
#include <system_error>
#include <utility>

#include "cli/failure.h"
#include "cli/mounting/daemon_log.h"
#include "cli/mounting/utab.h"
#include "cli/progress.h"
#include "common/exit_codes.h"
#include "common/unique_fd.h"
#include "store/sys/system_calls.h"

namespace cacheshim::cli {
namespace {

constexpr int kPipeFd = 3;  // besides 0 to 2, the only inherited descriptor
constexpr int kPollMs = 200;

void send(const std::string& text) {
  if (::write(kPipeFd, text.data(), text.size()) < 0) return;  // the parent has exited
}

void redirect_to_null(int fd) {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null) (void)::dup2(null.get(), fd);  // without /dev/null, the descriptor stays unchanged
}

// Closes the descriptors that were inherited from the command: otherwise they would stay open until
// the daemon exits.
void keep_only_pipe(int pipe) {
  if (pipe != kPipeFd) (void)::dup2(pipe, kPipeFd);
  (void)sys::close_range(kPipeFd + 1, ~0U, 0);
  redirect_to_null(STDIN_FILENO);
  redirect_to_null(STDOUT_FILENO);
}

void report_ready(const DaemonOptions& options, DaemonLife life) {
  if (life == DaemonLife::kOnItsOwn) {
    log_to_file(options.run_dir);
    redirect_to_null(STDERR_FILENO);
    (void)::prctl(PR_SET_PDEATHSIG, 0);
  }
  send("R");
  (void)::close(kPipeFd);
}

[[noreturn]] void be_daemon(const DaemonOptions& options, DaemonLife life, int pipe, pid_t parent) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kExitFailed);  // the parent exited before the prctl(2)
  (void)::setsid();
  if (::chdir("/") != 0) ::_exit(kExitFailed);
  keep_only_pipe(pipe);
  log_to_stderr(spdlog::level::warn);
  int code = kExitSuccess;
  try {
    const auto error = serve(options, [&] { report_ready(options, life); });
    if (error) {
      send(fmt::format("{}\n{}", error->exit_code, error->message));
      code = error->exit_code;
    }
  } catch (const std::exception& error) {
    send(fmt::format("{}\nthe daemon cannot start: {}", kExitFailed, error.what()));
    code = kExitFailed;
  }
  spdlog::shutdown();
  ::_exit(code);
}

// Returns the daemon's report: "R", or all text up to the end of the pipe.
std::string read_report(int pipe) {
  Progress progress;
  std::string report;
  std::array<char, 4096> buffer;
  while (true) {
    struct pollfd poll = {pipe, POLLIN, 0};
    if (::poll(&poll, 1, kPollMs) == 0) {
      progress.update("starting the daemon", 0, 0);
      continue;
    }
    const ssize_t count = ::read(pipe, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return report;
    report.append(buffer.data(), static_cast<std::size_t>(count));
    if (report == "R") return report;
  }
}

[[noreturn]] void fail_with_report(const std::string& report, pid_t daemon) {
  int status = 0;
  (void)::waitpid(daemon, &status, 0);
  int code = 0;
  const char* end = report.data() + report.size();
  const auto [rest, error] = std::from_chars(report.data(), end, code);
  if (error == std::errc() && rest != end) throw Failure(code, std::string(rest + 1, end));
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("was killed by signal {}", WTERMSIG(status))
                              : fmt::format("ended with status {}", WEXITSTATUS(status));
  throw Failure(kExitFailed,
                fmt::format("the daemon {} before its mount was usable; nothing is mounted", how));
}

}  // namespace

pid_t start_daemon(const DaemonOptions& options, DaemonLife life) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Failure(kExitFailed,
                  fmt::format("cannot make a pipe: {}", std::generic_category().message(errno)));
  }
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t daemon = ::fork();
  if (daemon < 0) {
    throw Failure(kExitFailed, fmt::format("cannot start the daemon: {}",
                                           std::generic_category().message(errno)));
  }
  if (daemon == 0) be_daemon(options, life, writer.get(), parent);
  writer.reset();
  const std::string report = read_report(reader.get());
  if (report != "R") fail_with_report(report, daemon);
  return daemon;
}

void run_in_foreground(const DaemonOptions& options) {
  log_to_stderr(spdlog::level::info);
  const auto error = serve(options, [&] { note_mount_later(options.source, options.mount_point); });
  if (error) throw Failure(error->exit_code, error->message);
}

void mount_and_serve(const DaemonOptions& options, bool foreground) {
  if (foreground) {
    run_in_foreground(options);
  } else {
    (void)start_daemon(options, DaemonLife::kOnItsOwn);  // init reaps the daemon later
    note_mount(options.source, options.mount_point);
  }
}

}  // namespace cacheshim::cli
