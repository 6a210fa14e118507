// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

namespace cacheshim {

// Counts the changes to the base per directory. The kernel must not cache an answer that was
// computed before a change but reaches the kernel after the invalidation; the counters identify
// such answers. Directories whose hashes collide share a counter; at worst the kernel caches an
// answer for a shorter time than possible. Thread-safe.
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
