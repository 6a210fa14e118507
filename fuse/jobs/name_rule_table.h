// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/name_rules.h"
#include "store/profiles/profile.h"

namespace cacheshim {

// The profiles' name classes in the preloaded library's format (common/name_rules.h).
class NameRuleTable {
 public:
  explicit NameRuleTable(const std::vector<Profile>& profiles);
  NameRuleTable(const NameRuleTable&) = delete;
  NameRuleTable& operator=(const NameRuleTable&) = delete;

  const std::string& bytes() const { return bytes_; }
  std::uint32_t family_count() const { return family_count_; }
  // Whether processes must not read this name, or anything below it, from the base directly.
  bool is_mount_only(std::string_view path) const;

 private:
  std::string bytes_;
  std::uint32_t family_count_ = 0;
  NameRules rules_;
};

}  // namespace cacheshim
