// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/mount_file.h"

#include "common/unique_fd.h"
#include "shim/process_files.h"

namespace cacheshim {
namespace {

Result<std::size_t> read_some(int fd, char* out, std::size_t capacity) {
  for (;;) {
    const ssize_t got = ::read(fd, out, capacity);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) return Errno::last();
  }
}

}  // namespace

Result<MountState> read_mount_state(std::string_view path) {
  const UniqueFd fd(real::open(mountinfo_path(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Errno::last();
  MountScanner scanner(path);
  for (;;) {
    char piece[4096];
    CACHESHIM_TRY(got, read_some(fd.get(), piece, sizeof piece));
    if (got == 0) return scanner.finish();
    scanner.feed({piece, got});
  }
}

Result<std::size_t> read_file(const char* path, char* out, std::size_t capacity) {
  const UniqueFd fd(real::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return Errno::last();
  std::size_t length = 0;
  while (length < capacity) {
    CACHESHIM_TRY(got, read_some(fd.get(), out + length, capacity - length));
    if (got == 0) return length;
    length += got;
  }
  return Errno(EFBIG);
}

}  // namespace cacheshim
