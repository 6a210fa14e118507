// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Calls functions that the library under test interposes (open, stat, getcwd, realpath and others) in
// a constructor, which may run before that library's constructor. Also opens a file in malloc, which
// the loader calls while it looks up symbols.
namespace {

bool use_everything() {
  char path[4096];
  struct stat status;
  errno = 4242;
  const int fd = ::open("/etc/passwd", O_RDONLY);
  bool good = fd >= 0 && ::close(fd) == 0;
  good = ::stat("/etc/../etc/passwd", &status) == 0 && good;
  good = ::access("/etc/passwd", R_OK) == 0 && good;
  good = ::getcwd(path, sizeof path) != nullptr && good;
  good = ::readlink("/proc/self/exe", path, sizeof path) > 0 && good;
  good = errno == 4242 && good;
  good = ::realpath("/etc", path) != nullptr && std::strcmp(path, "/etc") == 0 && good;
  std::FILE* const stream = std::fopen("/etc/passwd", "r");
  good = stream != nullptr && std::fclose(stream) == 0 && good;
  good = ::open("/nowhere/at/all", O_RDONLY) == -1 && errno == ENOENT && good;
  return good;
}

[[gnu::constructor]] void start_early() {
  ::setenv("TEST_EARLY", use_everything() ? "good" : "bad", 1);
}

}  // namespace

extern "C" void* __libc_malloc(std::size_t size);

extern "C" [[gnu::visibility("default")]] void* malloc(std::size_t size) {
  const int before = errno;
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
  errno = before;
  return __libc_malloc(size);
}
