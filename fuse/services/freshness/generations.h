// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

namespace cacheshim {

// Counts the changes to the base per directory, so that the daemon can detect this race:
//   1. The daemon reads the directory's counter, and looks up a name.
//   2. The name changes. The daemon counts the change and invalidates the name.
//   3. After the invalidation, the kernel gets the outdated answer of step 1, and caches it.
// When the daemon computes how long the kernel may cache the answer, it therefore reads the counter again. If the
// counter has changed, the kernel must not cache the answer. Directories whose hashes collide share a counter; a
// collision can only shorten the time for which the kernel caches an answer. Thread-safe.
class Generations {
 public:
  std::uint64_t of(std::string_view directory) const { return counter(directory) + all_; }
  void change(std::string_view directory) { ++counters_[slot(directory)]; }
  void change_all() { ++all_; }

 private:
  static constexpr std::size_t kCounters = 4096;

  static std::size_t slot(std::string_view directory) {
    return std::hash<std::string_view>{}(directory) % kCounters;
  }
  std::uint64_t counter(std::string_view directory) const { return counters_[slot(directory)]; }

  std::array<std::atomic<std::uint64_t>, kCounters> counters_{};
  std::atomic<std::uint64_t> all_{0};
};

}  // namespace cacheshim
