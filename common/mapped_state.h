// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/direct_page.h"
#include "common/name_rules.h"

namespace cacheshim {

// The parts of a mapped state file (direct_page.h) that a process uses. The pointers point into the mapping.
struct MappedState {
  const std::uint32_t* alive;
  const std::uint64_t* base_changes;
  NameRules rules;
  std::uint64_t device;
  std::uint64_t base_device;
  std::uint64_t base_inode;
  bool is_base_local;
};

// Returns the state in `memory`, or nothing if the memory holds no complete state. The owner of the file may change it
// at any time, so this function checks and uses a copy of the page, and NameRules checks each access. Requires:
// `memory` is aligned for MountPage and stays mapped.
inline std::optional<MappedState> mapped_state(const void* memory, std::size_t size_bytes) {
  MountPage page;
  if (size_bytes < sizeof page) return std::nullopt;
  std::memcpy(&page, memory, sizeof page);
  asm volatile("" ::: "memory");  // the compiler must not read the page again
  if (mount_page_over(&page, size_bytes) == nullptr || page.size_bytes > size_bytes ||
      page.rules_offset > page.size_bytes) {
    return std::nullopt;
  }
  const char* const bytes = static_cast<const char*>(memory);
  const std::string_view rules(bytes + page.rules_offset, page.size_bytes - page.rules_offset);
  return MappedState{alive_word(memory, page.alive_offset),
                     &static_cast<const MountPage*>(memory)->base_changes,
                     NameRules::over(rules, page.family_count),
                     page.device,
                     page.base_device,
                     page.base_inode,
                     page.is_base_local != 0};
}

}  // namespace cacheshim
