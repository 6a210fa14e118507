// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <utility>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// A file that this process has mapped for reading and writing, shared with other processes. Move-only; unmapped by the
// destructor.
class MappedFile {
 public:
  // Creates a file of zeros in the open directory `dir`, under a temporary name that begins with
  // ".". commit() then renames it to `name`, and so replaces an older file. All of the file's space
  // is allocated, so that writing to it cannot fail. Errors: ENOSPC and others of open, fallocate
  // and mmap.
  static Result<MappedFile> make(int dir, const std::string& name, std::size_t size_bytes,
                                 mode_t mode);
  Status commit(int dir, const std::string& name) const;

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cacheshim
