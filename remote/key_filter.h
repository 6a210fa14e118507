// SPDX-License-Identifier: Apache-2.0
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace cacheshim::remote {

// A set of texts that stores only a 64-bit hash of each: a million keys need 8 to 16 MB. With a million keys, has()
// wrongly returns true for one of 2^44 absent texts. Not thread-safe.
class KeyFilter {
 public:
  void add(std::string_view key) {
    const std::uint64_t hash = hash_of(key);
    if (has_old(hash) || !recent_.insert(hash).second) return;
    if (recent_.size() >= kLeastMerged + old_.size() / 8) merge();
  }
  void remove(std::string_view key) {
    const std::uint64_t hash = hash_of(key);
    if (recent_.erase(hash) != 0 || !has_old(hash)) return;
    old_.erase(std::lower_bound(old_.begin(), old_.end(), hash));
  }
  bool has(std::string_view key) const {
    const std::uint64_t hash = hash_of(key);
    return recent_.contains(hash) || has_old(hash);
  }
  std::size_t size() const { return old_.size() + recent_.size(); }

 private:
  static constexpr std::size_t kLeastMerged = 1024;

  static std::uint64_t hash_of(std::string_view key) { return XXH3_64bits(key.data(), key.size()); }
  bool has_old(std::uint64_t hash) const {
    return std::binary_search(old_.begin(), old_.end(), hash);
  }
  void merge() {
    const auto middle = static_cast<std::ptrdiff_t>(old_.size());
    old_.insert(old_.end(), recent_.begin(), recent_.end());
    std::sort(old_.begin() + middle, old_.end());
    std::inplace_merge(old_.begin(), old_.begin() + middle, old_.end());
    recent_.clear();
  }

  std::vector<std::uint64_t> old_;  // sorted
  std::unordered_set<std::uint64_t> recent_;
};

}  // namespace cacheshim::remote
