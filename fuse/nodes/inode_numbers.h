// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace cacheshim {

// Inode numbers of the mount. The base, other lower directories and the layers may be on several file systems, which
// may use the same inode numbers, but the mount shows one st_dev for all of them. Programs identify files by st_dev and
// st_ino: tar and cp to detect hard links, other programs to detect loops.
//
// Objects of the first file system keep their numbers. In the numbers of the other file systems' objects, bits 48 to 60
// are the index of the file system in the table. The inode numbers of local file systems normally fit in 48 bits. A
// larger inode number, even of the first file system, is hashed together with the index; bit 61 marks such a hash. Two
// different objects can have equal numbers only if both numbers are hashed. Among a million such files, the probability
// of an equal pair is about 2 in 10^7. Bit 62 marks the mount's own directories (NodeTree). Not thread-safe: part of
// the node table, guarded by its lock.
class InodeNumbers {
 public:
  using Place = std::uint16_t;

  std::optional<Place> find(dev_t device) const {
    const auto at = std::find(devices_.begin(), devices_.end(), device);
    if (at == devices_.end()) return std::nullopt;
    return static_cast<Place>(at - devices_.begin());
  }
  Place find_or_add(dev_t device) {
    if (const auto known = find(device)) return *known;
    devices_.push_back(device);
    return static_cast<Place>(devices_.size() - 1);
  }
  dev_t device(Place place) const { return place < devices_.size() ? devices_[place] : 0; }

  static std::uint64_t number(Place place, ino_t inode) {
    if (inode < kFirstTooLarge && place < kPlaces) return place * kFirstTooLarge | inode;
    std::uint64_t mixed = inode + place * 0x9e3779b97f4a7c15ULL;  // splitmix64
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    return ((mixed ^ (mixed >> 31)) & (kHashed - 1)) | kHashed;
  }

 private:
  static constexpr std::uint64_t kFirstTooLarge = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kPlaces = std::uint64_t{1} << 13;
  static constexpr std::uint64_t kHashed = std::uint64_t{1} << 61;

  std::vector<dev_t> devices_;
};

}  // namespace cacheshim
