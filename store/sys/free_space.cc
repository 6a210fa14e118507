// SPDX-License-Identifier: Apache-2.0
#include "store/sys/free_space.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <limits>

namespace cacheshim {
namespace {

Result<FreeSpace::State> measure_directory(int directory) {
  struct statvfs st {};
  if (::fstatvfs(directory, &st) == -1) return Errno::last();
  return FreeSpace::State{std::uint64_t{st.f_bavail} * st.f_frsize,
                          std::uint64_t{st.f_blocks} * st.f_frsize};
}

}  // namespace

FreeSpace::FreeSpace(int directory)
    : FreeSpace(directory, {.measure = measure_directory, .now = Clock::now}) {}

FreeSpace::State FreeSpace::measure() {
  const auto state = directory_ < 0 ? Result<State>(Errno(EBADF)) : system_.measure(directory_);
  if (!state || state->total == 0) return {.available = last_available(), .total = 0};
  last_available_.store(state->available, std::memory_order_relaxed);
  return *state;
}

// Grants at most half of the free bytes between two measurements, because other processes also write to the file
// system.
bool FreeSpace::take(std::uint64_t bytes) {
  if (directory_ < 0) return true;
  const auto wanted = static_cast<std::int64_t>(
      std::min<std::uint64_t>(bytes, std::numeric_limits<std::int64_t>::max()));
  const auto now = system_.now();
  if (now.time_since_epoch().count() < until_.load(std::memory_order_relaxed) &&
      left_.fetch_sub(wanted, std::memory_order_relaxed) >= wanted) {
    return true;
  }
  const State state = measure();
  if (state.total == 0) return true;
  if (state.available < bytes) return false;
  left_.store(static_cast<std::int64_t>((state.available - bytes) / 2), std::memory_order_relaxed);
  until_.store((now + kLifetime).time_since_epoch().count(), std::memory_order_relaxed);
  return true;
}

}  // namespace cacheshim
