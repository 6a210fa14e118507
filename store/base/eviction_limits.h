// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace cacheshim {

// How much the base may hold, and for how long. Nothing set: nothing is evicted.
struct EvictionLimits {
  std::optional<std::uint64_t> max_size;        // bytes on disk
  std::optional<std::uint64_t> max_files;       // names, folders included
  std::optional<std::chrono::seconds> max_age;  // since the last use
  std::optional<std::uint64_t> min_free;        // bytes of the file system
  std::optional<double> min_free_percent;       // of its size
  // What was used more recently stays whatever the others say, min_free excepted.
  std::chrono::seconds min_age{std::chrono::hours(48)};

  bool are_set() const { return max_size || max_files || max_age || min_free || min_free_percent; }
};

}  // namespace cacheshim
