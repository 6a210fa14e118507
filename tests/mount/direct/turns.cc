// SPDX-License-Identifier: Apache-2.0
// A library that forces rare interleavings. Tests preload it after cacheshim's library. The directory $TURNS may
// contain these symlinks:
//
//   late             time(2) returns a time in the future; the target is the offset in seconds
//   before, after    the next open of a path that ends with the target waits before or after the system call. The
//                    process renames the symlink to `held`, and continues when the test removes `held`. After a
//                    minute, the process aborts
//   looked           the next statx(2) of a descriptor whose number ends with the target waits in the same way, after
//                    the system call
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

constexpr useconds_t kPollUs = 1000;  // the interval at which a waiting call checks for `held`
constexpr int kMostChecks = 60'000;

template <class Function>
Function* next(const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

std::string link_of(const char* name) {
  const char* const directory = std::getenv("TURNS");
  return directory == nullptr ? std::string() : std::string(directory) + "/" + name;
}

// Returns the target of the symlink; empty if there is none.
std::string text_of(const std::string& link) {
  std::array<char, 4096> text{};
  const ssize_t length = ::readlink(link.c_str(), text.data(), text.size());
  return {text.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

void wait_if(const char* moment, std::string_view path) {
  const int before = errno;
  const std::string link = link_of(moment);
  const std::string end = text_of(link);
  if (!end.empty() && path.size() >= end.size() && path.substr(path.size() - end.size()) == end) {
    const std::string held = link_of("held");
    if (std::rename(link.c_str(), held.c_str()) != 0) std::abort();
    for (int left = kMostChecks; !text_of(held).empty(); --left) {
      if (left == 0) std::abort();
      (void)::usleep(kPollUs);
    }
  }
  errno = before;
}

template <class Open>
int open_in_turn(const char* path, Open open) {
  wait_if("before", path);
  const int fd = open();
  wait_if("after", path);
  return fd;
}

}  // namespace

extern "C" time_t time(time_t* out) noexcept {
  const int before = errno;
  const std::string late = text_of(link_of("late"));
  errno = before;
  timespec now{};
  (void)::clock_gettime(CLOCK_REALTIME_COARSE, &now);  // cannot fail
  const time_t shown = now.tv_sec + std::atol(late.c_str());
  if (out != nullptr) *out = shown;
  return shown;
}

extern "C" int statx(int dirfd, const char* path, int flags, unsigned mask,
                     struct statx* out) noexcept {
  static const auto real = next<int(int, const char*, int, unsigned, struct statx*)>("statx");
  const int result = real(dirfd, path, flags, mask, out);
  if ((flags & AT_EMPTY_PATH) != 0) wait_if("looked", std::to_string(dirfd));
  return result;
}

// Calls stat(2) on `path` `times` times in a vforked child.
extern "C" void look_in_a_vfork(const char* path, int times) {
  const pid_t child = ::vfork();
  if (child == 0) {
    struct stat status;
    for (int i = 0; i < times; ++i) (void)::stat(path, &status);  // the result does not matter
    ::_exit(0);
  }
  (void)::waitpid(child, nullptr, 0);
}

// Calls fstat(2) as programs that were built against glibc before 2.33 do, with a buffer on the
// stack. Returns the result.
extern "C" int __fxstat(int version, int fd, struct stat* out) noexcept;
extern "C" int fstat_to_the_stack(int version, int fd) {
  struct stat status;
  return __fxstat(version, fd, &status);
}

extern "C" int open(const char* path, int flags, ...) {
  static const auto real = next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open_in_turn(path, [=] { return real(path, flags, mode); });
}

extern "C" DIR* opendir(const char* path) {
  static const auto real = next<DIR*(const char*)>("opendir");
  wait_if("before", path);
  DIR* const stream = real(path);
  wait_if("after", path);
  return stream;
}

extern "C" int openat(int dirfd, const char* path, int flags, ...) {
  static const auto real = next<int(int, const char*, int, ...)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open_in_turn(path, [=] { return real(dirfd, path, flags, mode); });
}
