// SPDX-License-Identifier: Apache-2.0
#include "store/locks/shared_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "store/locks/lock_files.h"
#include "store/sys/sys.h"

namespace cacheshim {

Status SharedFile::stage(int fd, off_t keep_bytes) {
  if (is_staged()) return {};
  static std::atomic<std::uint64_t> next{0};
  const std::string name = fmt::format("shared-{}", next++);
  CACHESHIM_TRY(copy, sys::open_beneath(staging_, name, O_RDWR | O_CREAT | O_EXCL, 0600));
  name_ = name;
  Status copied = copy_file(fd, copy.get(), {.keep_bytes = keep_bytes});
  if (copied && ::dup3(copy.get(), fd, O_CLOEXEC) == -1) copied = Errno::last();
  if (!copied) discard();
  return copied;
}

Status SharedFile::commit(int fd, const LockFiles& files, const std::string& path) {
  if (!is_staged()) return {};
  if (files.find(path).failed_with(ENOENT)) {
    discard();
    return {};
  }
  CACHESHIM_CHECK(sys::sync_file(fd));
  CACHESHIM_CHECK(files.replace(path, staging_, name_));
  name_.clear();
  is_new_ = false;
  return {};
}

void SharedFile::discard() {
  // if this fails, the next daemon removes the copy
  if (is_staged()) (void)sys::unlink_at(staging_, name_);
  name_.clear();
}

}  // namespace cacheshim
