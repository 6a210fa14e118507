// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace cacheshim::parity {

// A shared mapping of a file's pages. System calls read and write it, because they return EFAULT
// where an access by the program itself would raise SIGBUS.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::size_t length, bool writable);
  ~Mapping() { reset(); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping& operator=(Mapping&& other) noexcept;

  explicit operator bool() const { return start_ != nullptr; }
  std::size_t length() const { return length_; }
  bool writable() const { return writable_; }
  void reset();

  // Each of these functions returns -1 and sets errno on failure.
  ssize_t load(std::size_t at, std::string& bytes) const;
  ssize_t store(std::size_t at, const std::string& bytes) const;
  int sync() const;

 private:
  char* start_ = nullptr;
  std::size_t length_ = 0;
  bool writable_ = false;
};

}  // namespace cacheshim::parity
