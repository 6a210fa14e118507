// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace cacheshim {

// The limits of the base. Without limits, nothing is evicted.
struct EvictionLimits {
  std::optional<std::uint64_t> max_size;        // bytes on disk
  std::optional<std::uint64_t> max_files;       // names, including directories
  std::optional<std::chrono::seconds> max_age;  // since the last use
  std::optional<std::uint64_t> min_free;        // free bytes in the file system
  std::optional<double> min_free_percent;       // percent of the file system's size
  // A unit that was used within this time is evicted only to meet min_free or min_free_percent.
  std::chrono::seconds min_age{std::chrono::hours(48)};

  bool are_set() const { return max_size || max_files || max_age || min_free || min_free_percent; }
};

}  // namespace cacheshim
