// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

// Which names of a cache family are no plain ones, as a flat table: the preloaded library serves
// only plain names from the base. Written by the daemon from the profiles, and a little wider than
// they are where that makes it simpler: a name too many goes to the mount, which is always right.
namespace cacheshim {

enum class NameRule : std::uint32_t {
  kMountOnly = 1,  // of any component of a path: it, and what is below it, is the mount's to answer
  // of any component but the cache's: if the path is not there, the mount is to say so
  kAwaited = 2,
};

// Layout: `count` of these, then the rules, then the strings, which end with a NUL. Offsets are
// from the table's start.
struct FamilyRecord {
  std::uint32_t name;  // the family's directory
  std::uint32_t name_length;
  std::uint32_t rules;  // the first of its NameRuleRecords
  std::uint32_t rule_count;
};
struct NameRuleRecord {
  std::uint32_t pattern;  // as of fnmatch(3) without flags
  std::uint32_t pattern_length;
  NameRule rule;
  // What each name begins and ends with that it matches, so that most need not be held against it;
  // NUL: that differs.
  char first;
  char last;
};

// A checked, read-only view of a table. Owns nothing; the bytes, aligned for records, must outlive
// it.
class NameRules {
 public:
  NameRules() = default;
  // An empty table where an offset leads out of it.
  static NameRules over(std::string_view bytes, std::uint32_t family_count);

  // Those of one family; null for one without.
  const FamilyRecord* find(std::string_view family) const;
  // `name` is not empty.
  bool any_applies(const FamilyRecord& family, NameRule rule, std::string_view name) const;

 private:
  bool is_valid(const FamilyRecord& family) const;
  const NameRuleRecord* rules_of(const FamilyRecord& family) const;

  std::string_view bytes_;
  const FamilyRecord* families_ = nullptr;
  std::uint32_t count_ = 0;
};

// fnmatch(3) without flags, and more: a bracket expression stands for any byte, or, where it is an
// intricate one, for whatever follows. Neither allocates nor knows of locales.
bool may_match_pattern(std::string_view pattern, std::string_view name);
char first_of_all_matches(std::string_view pattern);
char last_of_all_matches(std::string_view pattern);

}  // namespace cacheshim
