// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/name_rules.h"
#include "store/profiles/profile.h"

namespace cacheshim {

// The profiles' classes of names as the preloaded library knows them (common/name_rules.h).
class NameRuleTable {
 public:
  explicit NameRuleTable(const std::vector<Profile>& profiles);
  NameRuleTable(const NameRuleTable&) = delete;
  NameRuleTable& operator=(const NameRuleTable&) = delete;

  const std::string& bytes() const { return bytes_; }
  std::uint32_t family_count() const { return family_count_; }
  // Whether no process is served this name, or what is below it, from the base.
  bool is_mount_only(std::string_view path) const;

 private:
  std::string bytes_;
  std::uint32_t family_count_ = 0;
  NameRules rules_;
};

}  // namespace cacheshim
