// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// The files of the run directory that direct answers use. direct_filter.h describes the format of the filters.
//
//   <run directory>/state           MountPage and the name rules; shows whether the daemon is alive
//                views/<job>       the job's filter
//                counters/<job>    CounterSlots, which the processes of the view's user may write; then, if the daemon
//                                  records the names that the job uses, the words of used_names.h
//                base/             the base, bound read-only and nosymfollow
namespace cacheshim {

inline constexpr std::string_view kStateFile = "state";
inline constexpr std::string_view kViewsDirectory = "views";
inline constexpr std::string_view kCountersDirectory = "counters";
inline constexpr std::string_view kBaseDirectory = "base";

// Eviction depends on the access times of files. If the access time and the modification time of a file are both older
// than this period, a process opens the file through the mount instead of directly, and the daemon renews the access
// time. So an access time is renewed at most once per period. For an entry, eviction uses the latest access time of its
// files, so renewing the time of one file is enough.
inline constexpr std::int64_t kUseGrainSeconds = 24 * 60 * 60;
// A process that repeatedly opens the same file, or files of one entry, checks the access time at most once per period
// of this length.
inline constexpr std::uint64_t kUseCheckSeconds = 60 * 60;

inline constexpr std::uint32_t kMountPageMagic = 0x504d5343;  // "CSMP"
inline constexpr std::uint32_t kMountPageVersion = 4;

struct MountPage {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t size_bytes;    // the size of the whole file
  std::uint32_t rules_offset;  // where the name rules (name_rules.h) begin; they end with the file
  std::uint32_t family_count;  // the number of families in the name rules
  // Offset of a futex word that holds the id of a thread of the daemon. The word belongs to a
  // robust mutex: when the thread ends for any reason, the kernel releases the mutex and clears the
  // low bits.
  std::uint32_t alive_offset;
  std::uint64_t device;       // st_dev of the mount's files
  std::uint64_t base_device;  // st_dev of the base's directory, which is bound at base/
  std::uint64_t base_inode;
  // Not 0 if no other machine can change the base. Otherwise, only the daemon may list directories, and only the daemon
  // may report that a name is absent, because another machine may have created the name on the server.
  std::uint64_t is_base_local;
  // Incremented after each change to a name in the base. While the value is unchanged, a process that opens a name
  // again need not check the opened file again. 0 if the daemon is not notified of all changes.
  std::uint64_t base_changes;
};
inline constexpr std::uint32_t kAliveMask = 0x3fffffff;  // FUTEX_TID_MASK

// The inode numbers of the mount's root: the daemon's number, and the kernel's own number. stat(2) shows the kernel's
// own number until the kernel has sent its first request for the root to the daemon.
inline constexpr std::uint64_t kMountRootInode = (std::uint64_t{1} << 62) | 1;
inline constexpr std::uint64_t kKernelRootInode = 1;

// Returns the page at the beginning of `memory`, which holds the first `size_bytes` bytes of a
// state file; null if the page is not valid. Does not check rules_offset. Requires: `memory` is
// aligned for MountPage.
inline const MountPage* mount_page_over(const void* memory, std::size_t size_bytes) {
  const auto* const page = static_cast<const MountPage*>(memory);
  const bool fits = size_bytes >= sizeof *page && page->magic == kMountPageMagic &&
                    page->version == kMountPageVersion && page->size_bytes >= sizeof *page &&
                    page->alive_offset % 4 == 0 &&
                    page->alive_offset <= size_bytes - sizeof(std::uint32_t);
  return fits ? page : nullptr;
}
// Returns the word at `alive_offset` of the page at `memory`.
inline const std::uint32_t* alive_word(const void* memory, std::uint32_t alive_offset) {
  return static_cast<const std::uint32_t*>(
      static_cast<const void*>(static_cast<const char*>(memory) + alive_offset));
}
inline bool is_alive(const std::uint32_t* word) {
  return (__atomic_load_n(word, __ATOMIC_ACQUIRE) & kAliveMask) != 0;
}

// The value of a counter is the sum over all slots. Each thread selects one slot, so that few
// threads share a slot.
struct alignas(64) CounterSlot {
  std::uint64_t opens;  // opens that were served from the base
  std::uint64_t lookups;  // other answers from the base, including those for absent names
};
inline constexpr std::size_t kCounterSlots = 64;
inline constexpr std::size_t kCountersBytes = kCounterSlots * sizeof(CounterSlot);

}  // namespace cacheshim
