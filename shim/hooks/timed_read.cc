// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/hooks/timed_read.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "common/unique_fd.h"
#include "shim/routing/mount_file.h"

namespace cacheshim {
namespace {

struct Header {  // the child sends this header first, then the file's bytes
  std::size_t error;
  std::size_t length;
};

long long now_ms() {
  timespec now;
  (void)::clock_gettime(CLOCK_MONOTONIC, &now);  // cannot fail
  return now.tv_sec * 1000LL + now.tv_nsec / 1'000'000;
}

bool send_all(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::write(fd, at, size);
    if (sent == -1 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

// Closes the program's descriptors in the child: a child that waits for the daemon may survive
// SIGKILL, and must not keep the pipes of the program open.
void close_all_but(int fd) {
  if (fd > 0) (void)real::syscall(SYS_close_range, 0, fd - 1, 0);
  (void)real::syscall(SYS_close_range, fd + 1, ~0U, 0);
}

[[noreturn]] void read_and_send(int fd, const char* path, char* out, std::size_t capacity) {
  close_all_but(fd);
  const Result<std::size_t> got = read_file(path, out, capacity);
  const Header header{got ? 0 : static_cast<std::size_t>(got.error().code()), got ? *got : 0};
  if (send_all(fd, &header, sizeof header)) (void)send_all(fd, out, header.length);
  ::_exit(0);
}

// Receives exactly `size` bytes. Errors: ETIMEDOUT at `deadline`, EPIPE if the child exits earlier.
Status receive_all(int fd, void* data, std::size_t size, long long deadline) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const long long left = deadline - now_ms();
    pollfd wanted{fd, POLLIN, 0};
    const int ready = left <= 0 ? 0 : ::poll(&wanted, 1, static_cast<int>(left));
    if (ready == 0) return Errno(ETIMEDOUT);
    const ssize_t got = ready < 0 ? -1 : ::read(fd, at, size);
    if (got == -1 && errno == EINTR) continue;
    if (got == -1) return Errno::last();
    if (got == 0) return Errno(EPIPE);
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

Result<std::size_t> receive(int fd, char* out, std::size_t capacity, int timeout_ms) {
  const long long deadline = now_ms() + timeout_ms;
  Header header{};
  CACHESHIM_CHECK(receive_all(fd, &header, sizeof header, deadline));
  if (header.error != 0) return Errno(static_cast<int>(header.error));
  if (header.length > capacity) return Errno(EFBIG);
  CACHESHIM_CHECK(receive_all(fd, out, header.length, deadline));
  return header.length;
}

}  // namespace

// Calls clone(2) by number, because libc's fork() would run the program's pthread_atfork(3) handlers,
// and the child would send SIGCHLD. An abandoned child may leave a zombie, which wait(2) ignores.
Result<std::size_t> read_file_in_time(const char* path, char* out, std::size_t capacity,
                                      int timeout_ms) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == -1) return Errno::last();
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const long child = real::syscall(SYS_clone, 0, 0, 0, 0, 0);
  if (child == -1) return Errno::last();
  if (child == 0) read_and_send(writer.get(), path, out, capacity);
  writer.reset();
  const Result<std::size_t> got = receive(reader.get(), out, capacity, timeout_ms);
  const bool is_late = got.failed_with(ETIMEDOUT);
  if (is_late) (void)::kill(static_cast<pid_t>(child), SIGKILL);
  (void)::waitpid(static_cast<pid_t>(child), nullptr, __WALL | (is_late ? WNOHANG : 0));
  return got;
}

}  // namespace cacheshim
