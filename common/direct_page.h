// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What else the run directory holds for direct opens, beside the filters (direct_filter.h).
//
//   <run directory>/state             MountPage and the name rules: what the mount is, and whether
//   it lives
//                views/<job>       the job's filter
//                counters/<job>    CounterSlots, which the processes of the view's user may write
//                base/             the base, bound read-only and nosymfollow
namespace cacheshim {

inline constexpr std::string_view kStateFile = "state";
inline constexpr std::string_view kViewsFolder = "views";
inline constexpr std::string_view kCountersFolder = "counters";
inline constexpr std::string_view kBaseFolder = "base";

// That a file is used is written down as its access time, once in so long: eviction goes by that. A
// process that finds it older opens the file by way of the mount, and the daemon renews it.
inline constexpr std::int64_t kUseGrainSeconds = 24 * 60 * 60;
// How often a process that opens a file again and again looks how old that is.
inline constexpr std::uint64_t kUseLookSeconds = 60 * 60;

inline constexpr std::uint32_t kMountPageMagic = 0x504d5343;  // "CSMP"
inline constexpr std::uint32_t kMountPageVersion = 2;

struct MountPage {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t size_bytes;    // of the whole file
  std::uint32_t rules_offset;  // of the name rules (name_rules.h), to the end of the file
  std::uint32_t family_count;  // of the name rules
  // Offset of a futex word that holds the id of a thread of the daemon: 0 in its low bits once it
  // has ended, however it ended, since the kernel lets go of the robust mutex that the word belongs
  // to.
  std::uint32_t alive_offset;
  std::uint64_t device;       // st_dev of the mount's files
  std::uint64_t base_device;  // of the base's directory, to be found at base/
  std::uint64_t base_inode;
  // Grows with each change of a name in the base, once it has been made: what a process has found
  // out of a name it need not ask again meanwhile. 0 where the daemon is not told of all changes.
  std::uint64_t base_changes;
};
inline constexpr std::uint32_t kAliveMask = 0x3fffffff;  // FUTEX_TID_MASK

// The inode number of the mount's root: the daemon's, or the kernel's own until it has asked for
// it.
inline constexpr std::uint64_t kMountRootInode = (std::uint64_t{1} << 62) | 1;
inline constexpr std::uint64_t kUnaskedRootInode = 1;

// The page at the beginning of the `size_bytes` of a state file in `memory` (aligned as a page is);
// null where that is none of ours.
inline const MountPage* mount_page_over(const void* memory, std::size_t size_bytes) {
  const auto* const page = static_cast<const MountPage*>(memory);
  const bool fits = size_bytes >= sizeof *page && page->magic == kMountPageMagic &&
                    page->version == kMountPageVersion && page->size_bytes >= sizeof *page &&
                    page->alive_offset % 4 == 0 &&
                    page->alive_offset <= size_bytes - sizeof(std::uint32_t);
  return fits ? page : nullptr;
}
// The word at alive_offset.
inline const std::uint32_t* alive_word(const MountPage& page) {
  const char* const bytes = static_cast<const char*>(static_cast<const void*>(&page));
  return static_cast<const std::uint32_t*>(static_cast<const void*>(bytes + page.alive_offset));
}
inline bool is_alive(const std::uint32_t* word) {
  return (__atomic_load_n(word, __ATOMIC_ACQUIRE) & kAliveMask) != 0;
}

// A counter is the sum of its slots; who counts picks a slot so that few share one.
struct alignas(64) CounterSlot {
  std::uint64_t opens;  // served from the base
  std::uint64_t looks;  // other answers from the base, misses included
};
inline constexpr std::size_t kCounterSlots = 64;
inline constexpr std::size_t kCountersBytes = kCounterSlots * sizeof(CounterSlot);

}  // namespace cacheshim
