// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace cacheshim::parity {
namespace {

// Returns a memfd, through which pread and pwrite copy between mapped memory and a buffer. For a page beyond the end of
// the mapped file, these calls fail with EFAULT; an access by the program itself would raise SIGBUS.
int bounce() {
  static const int fd = ::memfd_create("bounce", MFD_CLOEXEC);
  return fd;
}

}  // namespace

Mapping::Mapping(int fd, std::size_t length, bool writable) : length_(length), writable_(writable) {
  void* start =
      ::mmap(nullptr, length, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (start != MAP_FAILED) start_ = static_cast<char*>(start);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(length_, other.length_);
  std::swap(writable_, other.writable_);
  return *this;
}

void Mapping::reset() {
  if (start_ != nullptr) (void)::munmap(std::exchange(start_, nullptr), length_);
}

ssize_t Mapping::load(std::size_t at, std::string& bytes) const {
  const ssize_t moved = ::pwrite(bounce(), start_ + at, bytes.size(), 0);
  return moved < 0 ? moved : ::pread(bounce(), bytes.data(), static_cast<std::size_t>(moved), 0);
}

ssize_t Mapping::store(std::size_t at, const std::string& bytes) const {
  const ssize_t moved = ::pwrite(bounce(), bytes.data(), bytes.size(), 0);
  return moved < 0 ? moved : ::pread(bounce(), start_ + at, static_cast<std::size_t>(moved), 0);
}

int Mapping::sync() const { return ::msync(start_, length_, MS_SYNC); }

}  // namespace cacheshim::parity
