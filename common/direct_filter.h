// SPDX-License-Identifier: Apache-2.0
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/path_components.h"

// The shadow filter of a view: a Bloom filter of the base's names that the layer shadows. The daemon writes the filter,
// and the preloaded library maps it read-only. So a process can determine, without a request to the daemon, that the
// layer does not shadow a name.
//
// A path has two keys, its own and the key "below" it:
// - The filter has the path's own key if the layer has or hides this name.
// - The filter has the key "below" the path if the layer hides everything that the base has under it.
// - The filter has both keys of each entry whose reads the daemon must see.
// Names that only the mount may answer for (name_rules.h) need no key. Bits are never cleared. The
// daemon writes a new file and retires the old filter when the filter becomes too small, when the
// view's owner changes, and when the layer is emptied.
//
// To check a listing, a process checks only the keys of the directory's path, not the keys of the names in it. If the
// filter lacks the keys of the path, the view shows the base's names in the directory, except for names that no view
// shows. This holds because the daemon adds a directory's own key in two cases: (1) before it creates the directory in
// the layer, in order to put a name, a whiteout or an opaque marker into it, and (2) if the view hides a lock file that
// the base has in the directory, for which the layer has no whiteout.
//
// A reader never uses a wrong answer from the base:
// 1. The daemon sets the bits of a key before it begins the change that the key describes, and does not wait in
//    between. It retires a filter before it sets a bit that only a newer filter gets.
// 2. A reader makes its call on the base. (It also checks the filter before this step, but only to avoid the call.)
// 3. The reader then checks the filter. It uses the base's answer only if the filter is not retired and lacks the keys
//    of the path.
// If a change that shadows the path had begun before step 2, its bits would have been set before step 2 and would still
// be set in step 3. So in step 2 no such change had begun, and the base's answer was also the view's answer. A change
// that has returned has set its bits, whichever process made it, so a reader that begins later uses the mount. Bits
// that are set by a collision also lead to the mount, whose answer is always correct.
//
// Layout (native byte order): FilterHeader, then `word_count` words of 64 bits. Each key has up to
// kBitsPerKey bits, all in one word, so that one access sets or reads them.
namespace cacheshim {

inline constexpr std::uint32_t kFilterMagic = 0x46445343;  // "CSDF"
inline constexpr std::uint32_t kFilterVersion = 1;
inline constexpr unsigned kBitsPerKey = 4;

struct alignas(64) FilterHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t word_count;  // a power of two
  std::uint32_t retired;     // not 0: do not use this filter; a newer one may have the same file name
  // Not 0: a process of this job is building. A process that opens a name of class `flight` must then use the mount,
  // even if the base has the name: from this open, the daemon may learn that the process has given up its own build.
  std::uint32_t building;
};

using FilterKey = std::uint64_t;

// key_of() returns the key of the name `component` in the directory whose key is `directory`. The
// key of a path is computed from the view's root, component by component:
// key_of(key_of(kRootKey, "triton"), "KEY"), or key_of_path("triton/KEY"). key_below() returns the key "below" a path.
inline constexpr FilterKey kRootKey = 0x9e3779b97f4a7c15;
inline FilterKey key_of(FilterKey directory, std::string_view component) {
  return XXH3_64bits_withSeed(component.data(), component.size(), directory);
}
inline FilterKey key_of_path(std::string_view path) {
  FilterKey key = kRootKey;
  while (!path.empty()) key = key_of(key, take_component(path));
  return key;
}
inline FilterKey key_below(FilterKey path) {
  const FilterKey mixed = (path ^ (path >> 29)) * 0xbf58476d1ce4e5b9;
  return mixed ^ (mixed >> 32);
}

// The position of a key's bits.
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

// A filter in shared memory, for readers. Owns nothing. All functions are async-signal-safe, and never read outside the
// given memory, even while the file's owner changes the file.
class FilterView {
 public:
  FilterView() = default;
  // Returns an empty FilterView if `memory` contains no filter. Requires: `memory` has `size_bytes`
  // bytes and stays mapped.
  static FilterView over(const void* memory, std::size_t size_bytes) {
    const auto* header = static_cast<const FilterHeader*>(memory);
    if (size_bytes < sizeof *header || header->magic != kFilterMagic) return {};
    // Reads the field only once, because another process may change the file.
    const std::uint32_t words = __atomic_load_n(&header->word_count, __ATOMIC_RELAXED);
    if (header->version != kFilterVersion || words == 0 || (words & (words - 1)) != 0) return {};
    if ((size_bytes - sizeof *header) / sizeof(std::uint64_t) < words) return {};
    return FilterView(header, words);
  }

  explicit operator bool() const { return header_ != nullptr; }
  std::uint32_t word_count() const { return word_count_; }
  bool is_retired() const { return __atomic_load_n(&header_->retired, __ATOMIC_ACQUIRE) != 0; }
  bool is_building() const { return __atomic_load_n(&header_->building, __ATOMIC_RELAXED) != 0; }
  bool has(const FilterPlace& place) const {
    return (__atomic_load_n(&words_[place.word], __ATOMIC_ACQUIRE) & place.bits) == place.bits;
  }

 private:
  FilterView(const FilterHeader* header, std::uint32_t word_count)
      : header_(header),
        word_count_(word_count),
        words_(static_cast<const std::uint64_t*>(static_cast<const void*>(header + 1))) {}

  const FilterHeader* header_ = nullptr;
  std::uint32_t word_count_ = 0;
  const std::uint64_t* words_ = nullptr;
};

// Checks whether one path may be shadowed. The path may be shadowed if the filter has the path's own key, or the
// "below" key of a directory above it.
class ShadowProbes {
 public:
  static constexpr std::size_t kMostComponents = 15;

  // Call before the other functions. Requires: `filter` is not empty and outlives this object.
  void begin(const FilterView& filter) {
    filter_ = &filter;
    add(key_below(directory_));
  }

  // Adds the next component. Call once for each component, beginning at the view's root. Returns false if the path has
  // too many components.
  bool descend(std::string_view component) {
    if (count_ == places_.size()) return false;
    if (depth_++ > 0) add(key_below(directory_));
    directory_ = key_of(directory_, component);
    if (depth_ == kEntryDepth) entry_ = directory_;
    return true;
  }
  // Call after the last component. Returns false if the path has too many components.
  bool finish() {
    if (count_ == places_.size()) return false;
    add(directory_);
    return true;
  }
  // The path's own key.
  FilterKey path() const { return directory_; }
  // Returns the key of the path's first two components: a cache's directory, and a directory or
  // file in it; kRootKey for a path with fewer components.
  FilterKey entry() const { return entry_; }
  // Returns true if the caller must not read the base, or must discard the answer that it got from the base.
  bool may_be_shadowed() const {
    if (filter_->is_retired()) return true;
    for (std::size_t i = 0; i < count_; ++i) {
      if (filter_->has(places_.data()[i])) return true;
    }
    return false;
  }

 private:
  void add(FilterKey key) { places_.data()[count_++] = place_of(key, filter_->word_count()); }

  static constexpr std::size_t kEntryDepth = 2;

  const FilterView* filter_ = nullptr;
  FilterKey directory_ = kRootKey;
  FilterKey entry_ = kRootKey;
  std::size_t depth_ = 0;
  std::size_t count_ = 0;
  // not initialized: only the first count_ elements are valid
  std::array<FilterPlace, kMostComponents + 1> places_;
};

}  // namespace cacheshim
