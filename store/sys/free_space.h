// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "common/result.h"

namespace cacheshim {

// Determines how many bytes the users of a file system may still take. A file system reserves blocks for root
// (statvfs.f_bavail excludes them). A daemon that runs as root must not use these blocks for the users that it serves,
// but the kernel does not prevent this. take() measures the file system again after kLifetime, and earlier if half of
// the bytes that were available have been taken. Thread-safe; takes no lock.
class FreeSpace {
 public:
  struct State {
    std::uint64_t available = 0;  // bytes, without those that are reserved for root
    std::uint64_t total = 0;      // bytes; 0 if the file system does not report it
  };
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLifetime{100};
  // The measurement and the clock, which unit tests replace.
  struct System {
    std::function<Result<State>(int directory)> measure;
    std::function<Clock::time_point()> now;
  };

  // `directory`: an open directory on the file system; it must stay open. If it is -1, take() always returns true.
  explicit FreeSpace(int directory);
  FreeSpace(int directory, System system) : directory_(directory), system_(std::move(system)) {}

  // Call before the daemon writes `bytes` for a user. Returns false if fewer bytes are available; the caller then fails
  // with ENOSPC. Returns true if the file system cannot be measured.
  [[nodiscard]] bool take(std::uint64_t bytes);
  // Returns the bytes that were available at the last measurement; the largest value of the type if there was none.
  std::uint64_t last_available() const { return last_available_.load(std::memory_order_relaxed); }
  // Measures now. Returns a state with total = 0 if the file system cannot be measured.
  State measure();

 private:
  const int directory_;
  const System system_;
  // Relaxed: the values are only estimates, and no other data depends on them.
  std::atomic<std::int64_t> left_{0};   // bytes that may be taken before the next measurement
  std::atomic<std::int64_t> until_{0};  // when the measurement becomes too old, in ticks of Clock
  std::atomic<std::uint64_t> last_available_{~std::uint64_t{0}};
};

}  // namespace cacheshim
