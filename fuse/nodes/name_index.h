// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cacheshim {

// A hash table of nonzero numbers. Each number has a key, which the caller can derive from the number. The table stores
// only a part of the key's hash. Takes 8 bytes per slot and no allocation per entry. Uses open addressing with linear
// probing; a removal moves the following entries back, so that there are no tombstones. Not thread-safe.
class NameIndex {
 public:
  // Returns the number under `hash` for which `is_it(number)` is true, or 0 if there is none.
  template <class Predicate>
  std::uint32_t find(std::uint64_t hash, Predicate&& is_it) const {
    if (slots_.empty()) return 0;
    const std::uint32_t key = key_of(hash);
    for (std::size_t at = key & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.number == 0) return 0;
      if (slot.key == key && is_it(slot.number)) return slot.number;
    }
  }

  void insert(std::uint64_t hash, std::uint32_t number) {
    if ((used_ + 1) * 5 > slots_.size() * 4) resize(slots_.empty() ? kLeast : slots_.size() * 2);
    place({key_of(hash), number});
    ++used_;
  }

  // Requires: the pair is present.
  void erase(std::uint64_t hash, std::uint32_t number) {
    const std::uint32_t key = key_of(hash);
    std::size_t hole = key & mask();
    while (slots_[hole].key != key || slots_[hole].number != number) hole = (hole + 1) & mask();
    for (std::size_t at = (hole + 1) & mask(); slots_[at].number != 0; at = (at + 1) & mask()) {
      // An entry may move into the hole unless the hole lies before the slot to which the entry's hash leads.
      const std::size_t distance = (at - slots_[at].key) & mask();
      if (distance >= ((at - hole) & mask())) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = Slot{};
    --used_;
    if (used_ * 8 < slots_.size() && slots_.size() > kLeast) resize(slots_.size() / 4);
  }

 private:
  struct Slot {
    std::uint32_t key = 0;  // the stored part of the hash
    std::uint32_t number = 0;
  };
  // The initial number of slots. The number of slots is always a power of 2.
  static constexpr std::size_t kLeast = 64;

  static std::uint32_t key_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  std::size_t mask() const { return slots_.size() - 1; }

  void place(const Slot& slot) {
    std::size_t at = slot.key & mask();
    while (slots_[at].number != 0) at = (at + 1) & mask();
    slots_[at] = slot;
  }

  void resize(std::size_t size) {
    std::vector<Slot> old(size);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number != 0) place(slot);
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace cacheshim
