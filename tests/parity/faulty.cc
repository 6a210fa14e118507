// SPDX-License-Identifier: Apache-2.0
// A library that is preloaded into the parity program, to cause one error in each of its models. In views, chmod never
// grants others read permission, and a pwrite across the end of the third page loses its last byte.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace {

constexpr off_t kEdge = 3 * 4096;

bool is_in_view_of(const char* model, int fd) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size() - 1);
  return length > 0 &&
         std::string(path.data()).find(std::string("/view/") + model) != std::string::npos;
}

template <class Function>
Function* next(const char* name, Function* /*like*/) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

}  // namespace

extern "C" int fchmodat(int directory, const char* path, mode_t mode, int flags) noexcept {
  static const auto real = next("fchmodat", ::fchmodat);
  return real(directory, path, is_in_view_of("model-", directory) ? mode & ~mode_t{S_IROTH} : mode,
              flags);
}

// Programs with 64-bit offsets call pwrite by this name.
extern "C" ssize_t pwrite64(int fd, const void* data, size_t size, off_t offset) {
  static const auto real = next("pwrite64", ::pwrite);
  const auto end = offset + static_cast<off_t>(size);
  if (offset >= kEdge || end <= kEdge || !is_in_view_of("data-", fd))
    return real(fd, data, size, offset);
  return real(fd, data, size - 1, offset) + 1;
}
