// SPDX-License-Identifier: Apache-2.0
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

// What the layer of a view shadows of the base: a Bloom filter that the daemon writes and the
// preloaded library maps read-only, so that a process can tell by itself that a name is the base's
// alone.
//
// Keys: a path, where the layer has or hides this name; "below" a path, where it hides whatever the
// base has under it. Nothing is ever taken out; a filter that has become too small, or of another
// owner, is replaced by a new file and retired.
//
// The key of a directory is also what its listing needs. The layer has a name, a whiteout or a mark
// in a directory only if it has the directory itself, and makes that, with its key, first. A lock
// file of the base that the view hides without the layer adds the key of its directory. So where
// the bits of a directory are unset, the view shows there what the base has, but for names that no
// view shows.
//
// The proof that a reader never serves the base wrongly. The daemon sets the bits of a key before
// it begins the change that the key tells of (it may wait for nothing in between), and retires a
// filter before it sets a bit in a newer one alone. A reader (1) asks the base and (2) then finds
// the filter unretired and the bits of its path unset. By (2), when it asked at (1) no change that
// shadows the path had begun: had one begun before, its bits would have been set before that, and
// they never go away. So what the base said at (1) is what the view was at that moment. (Before (1)
// it looks as well, but only to spare itself the call.) A change that has returned has set its
// bits, whoever made it, so that a reader which begins later goes to the mount. Falsely set bits
// lead to the mount as well: no harm.
//
// Layout (native byte order): FilterHeader, then `word_count` words of 64 bits. Each key has
// kBitsPerKey bits of one word, so that it is set and read in one access.
namespace cacheshim {

inline constexpr std::uint32_t kFilterMagic = 0x46445343;  // "CSDF"
inline constexpr std::uint32_t kFilterVersion = 1;
inline constexpr unsigned kBitsPerKey = 4;

struct alignas(64) FilterHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t word_count;  // a power of two
  std::uint32_t retired;     // not 0: ask no more, there may be a newer file of this name
  // Not 0: a process of this job builds something. A process that opens a name of class `flight`
  // asks the mount then, even if the base has the name: the open shows that the process has given
  // up what it was to build.
  std::uint32_t building;
};

using FilterKey = std::uint64_t;

// Of a path from the view's root, component by component: key_of(key_of(kRootKey, "triton"),
// "KEY").
inline constexpr FilterKey kRootKey = 0x9e3779b97f4a7c15;
inline FilterKey key_of(FilterKey directory, std::string_view component) {
  return XXH3_64bits_withSeed(component.data(), component.size(), directory);
}
inline FilterKey key_below(FilterKey path) {
  const FilterKey mixed = (path ^ (path >> 29)) * 0xbf58476d1ce4e5b9;
  return mixed ^ (mixed >> 32);
}

// Where a key's bits are.
struct FilterPlace {
  std::uint32_t word;
  std::uint64_t bits;
};
inline FilterPlace place_of(FilterKey key, std::uint32_t word_count) {
  FilterPlace place{static_cast<std::uint32_t>(key >> 32) & (word_count - 1), 0};
  for (unsigned i = 0; i < kBitsPerKey; ++i)
    place.bits |= std::uint64_t{1} << ((key >> (6 * i)) & 63);
  return place;
}

// A filter in shared memory, as its readers see it. Owns nothing. All are async-signal-safe.
class FilterView {
 public:
  FilterView() = default;
  // `memory` holds `size_bytes` and stays mapped. An empty view where that is no filter.
  static FilterView over(const void* memory, std::size_t size_bytes) {
    const auto* header = static_cast<const FilterHeader*>(memory);
    if (size_bytes < sizeof *header || header->magic != kFilterMagic) return {};
    const std::uint64_t words = header->word_count;
    if (header->version != kFilterVersion || words == 0 || (words & (words - 1)) != 0) return {};
    if ((size_bytes - sizeof *header) / sizeof(std::uint64_t) < words) return {};
    return FilterView(header);
  }

  explicit operator bool() const { return header_ != nullptr; }
  std::uint32_t word_count() const { return header_->word_count; }
  bool is_retired() const { return __atomic_load_n(&header_->retired, __ATOMIC_ACQUIRE) != 0; }
  bool is_building() const { return __atomic_load_n(&header_->building, __ATOMIC_RELAXED) != 0; }
  bool has(const FilterPlace& place) const {
    return (__atomic_load_n(&words_[place.word], __ATOMIC_ACQUIRE) & place.bits) == place.bits;
  }

 private:
  explicit FilterView(const FilterHeader* header)
      : header_(header),
        words_(static_cast<const std::uint64_t*>(static_cast<const void*>(header + 1))) {}

  const FilterHeader* header_ = nullptr;
  const std::uint64_t* words_ = nullptr;
};

// The keys that may shadow one path: that of the path, and "below" each directory above it.
class ShadowProbes {
 public:
  static constexpr std::size_t kMostComponents = 15;

  // First of all.
  void begin(const FilterView& filter) {
    filter_ = &filter;
    add(key_below(folder_));
  }

  // The components from the view's root on, in turn. False where there are too many.
  bool descend(std::string_view component) {
    if (count_ == places_.size()) return false;
    if (depth_++ > 0) add(key_below(folder_));
    folder_ = key_of(folder_, component);
    return true;
  }
  // After the last component.
  bool finish() {
    if (count_ == places_.size()) return false;
    add(folder_);
    return true;
  }
  // The path's own key.
  FilterKey path() const { return folder_; }
  // Whether the base is not to be asked, or is not to be believed when it has been.
  bool may_be_shadowed() const {
    if (filter_->is_retired()) return true;
    for (std::size_t i = 0; i < count_; ++i) {
      if (filter_->has(places_.data()[i])) return true;
    }
    return false;
  }

 private:
  void add(FilterKey key) { places_.data()[count_++] = place_of(key, filter_->word_count()); }

  const FilterView* filter_ = nullptr;
  FilterKey folder_ = kRootKey;
  std::size_t depth_ = 0;
  std::size_t count_ = 0;
  std::array<FilterPlace, kMostComponents + 1> places_;  // not cleared: count_ are set
};

}  // namespace cacheshim
