// SPDX-License-Identifier: Apache-2.0
// A library to preload. It makes flock(2) fail with ENOLCK, as on a file system that has no locks,
// for the files and directories in NO_LOCKS_BELOW (separated by ':') and for everything below them.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool is_below(std::string_view path, std::string_view top) {
  return !top.empty() && path.substr(0, top.size()) == top &&
         (path.size() == top.size() || path[top.size()] == '/');
}

bool has_no_locks(int fd) {
  const char* const list = std::getenv("NO_LOCKS_BELOW");
  if (list == nullptr) return false;
  std::array<char, 4096> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  if (length <= 0) return false;
  const std::string_view path(target.data(), static_cast<std::size_t>(length));
  std::string_view rest = list;
  while (!rest.empty()) {
    const auto end = std::min(rest.find(':'), rest.size());
    if (is_below(path, rest.substr(0, end))) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

template <class Function>
Function* next(const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

}  // namespace

extern "C" int flock(int fd, int operation) noexcept {
  static const auto real = next<int(int, int)>("flock");
  if ((operation & LOCK_UN) != 0 || !has_no_locks(fd)) return real(fd, operation);
  errno = ENOLCK;
  return -1;
}
