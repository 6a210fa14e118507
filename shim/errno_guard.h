// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

namespace cacheshim {

// Restores errno when it goes out of scope.
class ErrnoGuard {
 public:
  ErrnoGuard() : saved_(errno) {}
  ~ErrnoGuard() { errno = saved_; }
  ErrnoGuard(const ErrnoGuard&) = delete;
  ErrnoGuard& operator=(const ErrnoGuard&) = delete;

 private:
  int saved_;
};

}  // namespace cacheshim
