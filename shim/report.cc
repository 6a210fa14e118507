// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/report.h"

#include <signal.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <utility>

#include "common/printable.h"
#include "common/root_process.h"
#include "common/unique_fd.h"
#include "shim/errno_guard.h"
#include "shim/start/process_environment.h"
#include "shim/start/trusted_paths.h"

namespace cacheshim {
namespace {

constinit std::atomic<bool> is_settled{false};
constinit char report_file[PATH_MAX] = {};  // if empty, lines go to stderr
constinit bool had_stderr = true;

// Whether `fd` (descriptor 2) is stderr, and not a data file that the program has opened. Returns true if the
// descriptor was open when the program started, and is not a seekable file that is open for reading and writing.
bool is_stderr(int fd) {
  if (!had_stderr) return false;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags == -1) return false;
  return (flags & O_ACCMODE) != O_RDWR || ::lseek(fd, 0, SEEK_CUR) == -1;
}

// Blocks SIGPIPE in this thread while a line is written, and discards the signal if the write
// raised it.
class SigpipeGuard {
 public:
  SigpipeGuard() {
    (void)::sigemptyset(&pipe_);
    (void)::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    (void)::sigpending(&pending);
    pending_before_ = ::sigismember(&pending, SIGPIPE) == 1;
    blocked_ = ::sigprocmask(SIG_BLOCK, &pipe_, &old_) == 0;
  }
  ~SigpipeGuard() {
    if (!blocked_) return;
    const timespec now{0, 0};
    if (!pending_before_) (void)::sigtimedwait(&pipe_, nullptr, &now);  // usually no signal is pending
    (void)::sigprocmask(SIG_SETMASK, &old_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t pipe_;
  sigset_t old_;
  bool pending_before_ = false;
  bool blocked_ = false;
};

// Whether the path names a descriptor of this process. Such a name is a symlink, but leads only to a
// file that the process has open. A longer path may lead anywhere (/dev/fd/../../tmp/x).
bool is_own_descriptor(const char* path) {
  if (std::strcmp(path, "/dev/stdout") == 0 || std::strcmp(path, "/dev/stderr") == 0) return true;
  for (const char* const directory : {"/dev/fd/", "/proc/self/fd/"}) {
    const std::size_t length = std::strlen(directory);
    if (std::strncmp(path, directory, length) != 0) continue;
    const char* const number = path + length;
    return *number != '\0' && number[std::strspn(number, "0123456789")] == '\0';
  }
  return false;
}

// Opens the report file in a root process. Returns an empty descriptor if another user may have redirected the path to
// a different file.
UniqueFd open_as_root(int flags) {
  if (is_own_descriptor(report_file)) return UniqueFd(real::open(report_file, flags, 0644));
  if (!is_path_of_root(report_file)) return UniqueFd();
  UniqueFd file(real::open(report_file, flags | O_NOFOLLOW, 0644));
  struct stat st;
  if (!file || real::__fxstat(kStatVersion, file.get(), &st) != 0) return UniqueFd();
  const bool is_own = st.st_uid == 0 || st.st_uid == ::geteuid();
  // In /tmp, another user may have made a hard link to a file of root, unless
  // fs.protected_hardlinks forbids that.
  const bool has_other_names = S_ISREG(st.st_mode) && st.st_nlink > 1;
  return is_own && !has_other_names ? std::move(file) : UniqueFd();
}

// Opens the file that CACHESHIM_LOG names. Does not wait for a reader of a FIFO.
UniqueFd open_report_file() {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  if (report_file[0] == '\0') return UniqueFd();
  UniqueFd file =
      is_root_process() ? open_as_root(kFlags) : UniqueFd(real::open(report_file, kFlags, 0666));
  if (file) (void)::fcntl(file.get(), F_SETFL, O_APPEND);  // clears O_NONBLOCK: a write to a full pipe waits
  return file;
}

}  // namespace

// Two threads may call this function concurrently: they write the same values.
void settle_reports() {
  if (is_settled.load(std::memory_order_acquire)) return;
  had_stderr = ::fcntl(STDERR_FILENO, F_GETFL) != -1;
  const ProcessEnvironment environment;
  const std::string_view log = environment.find(kLogVariable);
  const auto is_of_another_user = [&] {
    return has_environment_of_another_user(environment) && is_root_process();
  };
  if (!environment.is_disabled() && !log.empty() && log.size() < sizeof report_file &&
      !is_of_another_user()) {
    std::memcpy(report_file, log.data(), log.size());
  }
  is_settled.store(true, std::memory_order_release);
}

void report_line(std::initializer_list<std::string_view> parts) {
  const ErrnoGuard errno_guard;
  const SigpipeGuard sigpipe_guard;
  settle_reports();
  char line[1024] = "cacheshim: ";
  std::size_t length = std::strlen(line);
  for (const std::string_view part : parts) {
    length += write_printable(part, line + length, sizeof line - 1 - length);
  }
  line[length++] = '\n';
  const UniqueFd file = open_report_file();
  if (!file && !is_stderr(STDERR_FILENO)) return;
  // A line that cannot be written is lost.
  [[maybe_unused]] const ssize_t written = ::write(file ? file.get() : STDERR_FILENO, line, length);
}

std::string_view mount_error_text(int error) {
  switch (error) {
    case ENOTCONN:
      return "Transport endpoint is not connected";
    case ECONNABORTED:
      return "Software caused connection abort";
    case ESTALE:
      return "Stale file handle";
    default:
      return "it is not mounted any more";
  }
}

}  // namespace cacheshim
