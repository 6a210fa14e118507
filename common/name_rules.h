// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// The special names of each cache family, as a flat table: the names for which the preloaded
// library must let the mount answer, always or if the base lacks the name (NameRule). The daemon
// writes the table from the profiles. A pattern here is simplified, and may match more names than
// the profile's pattern. The mount then also answers for the additional names, and its answers are
// always correct.
namespace cacheshim {

enum class NameRule : std::uint32_t {
  kMountOnly = 1,  // if a component of a path matches, only the mount answers for the path
  // if a component below the family's directory matches and the path is absent, only the mount may
  // report ENOENT, because the lookup may have to wait for a builder
  kAwaited = 2,
};

// Layout: `family_count` FamilyRecords, then the NameRuleRecords, then the strings, each ended by a
// NUL. Offsets are relative to the table's start.
struct FamilyRecord {
  std::uint32_t name;  // the family's directory
  std::uint32_t name_length;
  std::uint32_t rules;  // the offset of the family's first NameRuleRecord
  std::uint32_t rule_count;
  // Not 0: the entries are the directories directly in the family's directory, so recording the use of
  // one file of an entry is enough.
  std::uint32_t entries_are_directories;
};
struct NameRuleRecord {
  std::uint32_t pattern;  // a pattern of fnmatch(3) without flags
  std::uint32_t pattern_length;
  NameRule rule;
  // The character with which every matching name begins, and the one with which every matching name ends; NUL if there
  // is none. Comparing these first avoids may_match_pattern() for most names that do not match.
  char first;
  char last;
};

// Reads a table in memory that over() has checked. Does not own the table's bytes, which must outlive this object. If
// the bytes change later, the answers are arbitrary, but no function reads outside of the table.
class NameRules {
 public:
  NameRules() = default;
  // Returns an empty table if the table in `bytes` is invalid: a record or a string is not completely inside the table,
  // a record is misaligned, or records or strings overlap so much that a search would be slow.
  static NameRules over(std::string_view bytes, std::uint32_t family_count);

  // Returns the record of one family; nothing if the table does not have the family.
  std::optional<FamilyRecord> find(std::string_view family) const;
  // Whether a rule of the kind `wanted` in the family's rules matches `name`. Also true if the table has become
  // invalid: the mount then answers. Requires: `name` is not empty.
  bool any_applies(const FamilyRecord& family, NameRule wanted, std::string_view name) const;

 private:
  std::uint32_t word(std::uint64_t offset) const;
  template <class Record>
  Record load(std::uint64_t offset) const;
  bool has(std::uint64_t offset, std::uint64_t length) const { return offset + length <= bytes_.size(); }
  std::optional<std::string_view> text(std::uint32_t offset, std::uint32_t length) const;
  bool has_rules(const FamilyRecord& family) const;
  static std::uint64_t rule_offset(const FamilyRecord& family, std::uint32_t number);
  NameRuleRecord rule(const FamilyRecord& family, std::uint32_t number) const;
  bool is_valid() const;

  std::string_view bytes_;
  std::uint32_t count_ = 0;
};

// Returns true for all names that fnmatch(3) without flags matches, and for some others. A bracket expression matches
// any byte. If the expression contains another '[' or '\', or has no end, it and the rest of the pattern match any
// text. Does not allocate memory and does not depend on the locale.
bool may_match_pattern(std::string_view pattern, std::string_view name);
// Return the character with which all matching names begin or end; NUL if there is none.
char first_of_all_matches(std::string_view pattern);
char last_of_all_matches(std::string_view pattern);

}  // namespace cacheshim
