// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

std::string name_until_commit(const std::string& name) { return "." + name; }

}  // namespace

Result<MappedFile> MappedFile::make(int dir, const std::string& name, std::size_t size_bytes,
                                    mode_t mode) {
  const std::string staged = name_until_commit(name);
  (void)sys::unlink_at(dir, staged);  // an earlier daemon may have left it before its commit
  CACHESHIM_TRY(fd, sys::open_beneath(dir, staged, O_RDWR | O_CREAT | O_EXCL, 0600));
  CACHESHIM_CHECK(sys::set_mode(fd.get(), mode));
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size_bytes));
      error != 0) {
    (void)sys::unlink_at(dir, staged);  // a leftover is harmless
    return Errno(error);
  }
  void* const data = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return Errno::last();
  MappedFile file;
  file.data_ = data;
  file.size_ = size_bytes;
  return file;
}

Status MappedFile::commit(int dir, const std::string& name) const {
  return sys::rename_at(dir, name_until_commit(name), dir, name);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) (void)::munmap(data_, size_);  // cannot fail for a mapping
}

}  // namespace cacheshim
