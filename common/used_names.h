// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/direct_filter.h"
#include "common/path_components.h"

// The names of the base that a job has used: a Bloom filter of kUsedWords words. Only prefetching needs it
// (docs/remote.md). Each path that is read adds its own key and the keys of the directories above it, except for the
// cache's directory at the top. So the filter has the key of every used entry, whether the entry is a file or a
// directory.
//
// The job's processes write to the filter, and may write anything. With 1,000 used entries, about 1 of 20,000 other
// names is a false positive.
namespace cacheshim {

inline constexpr std::uint32_t kUsedWords = 4096;  // a power of two
inline constexpr std::size_t kUsedBytes = kUsedWords * sizeof(std::uint64_t);

// Adds a path, relative to the base. Thread-safe and async-signal-safe. Requires: `words` has kUsedWords words.
inline void mark_used(std::uint64_t* words, std::string_view path) {
  FilterKey key = kRootKey;
  for (bool is_top = true; !path.empty(); is_top = false) {
    key = key_of(key, take_component(path));
    if (is_top) continue;
    const FilterPlace place = place_of(key, kUsedWords);
    std::uint64_t* const word = words + place.word;
    // Most marks are set already, and a write would take the cache line from other processes.
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & place.bits) != place.bits)
      __atomic_fetch_or(word, place.bits, __ATOMIC_RELAXED);
  }
}

// Whether the path, or a path below it, was probably added. Requires: `words` has kUsedWords words.
inline bool is_marked_used(const std::uint64_t* words, std::string_view path) {
  const FilterPlace place = place_of(key_of_path(path), kUsedWords);
  return (words[place.word] & place.bits) == place.bits;
}

}  // namespace cacheshim
