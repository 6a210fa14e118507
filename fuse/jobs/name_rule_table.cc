// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/name_rule_table.h"

#include <algorithm>
#include <utility>

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

using Rules = std::vector<std::pair<NameRule, std::string>>;

constexpr std::string_view kAnyDepth = "**";

bool has_literal_character(std::string_view component) {
  return component.find_first_not_of("*?") != component.npos;
}

// Returns the pattern's last component that consists of more than wildcards; "*" if there is none.
// Every path that the pattern matches, and every path below it, has a component that matches the
// returned one.
std::string last_literal_component(std::string_view pattern) {
  std::string_view found = "*";
  while (!pattern.empty()) {
    const std::string_view component = take_component(pattern);
    if (has_literal_character(component)) found = component;
  }
  return std::string(found);
}

// Returns a pattern for the last component of each path that the pattern matches.
std::string last_component(std::string_view pattern) {
  std::string_view last;
  while (!pattern.empty()) last = take_component(pattern);
  return std::string(last == kAnyDepth ? "*" : last);
}

Rules rules_of(const Profile& profile) {
  Rules rules;
  for (const auto& [name_class, pattern] : profile.classes) {
    if (row_of(name_class).is_awaited) {
      rules.emplace_back(NameRule::kAwaited, last_component(pattern.text()));
    } else {
      rules.emplace_back(NameRule::kMountOnly, last_literal_component(pattern.text()));
    }
  }
  return rules;
}

bool entries_are_directories(const Profile& profile) {
  return !profile.entries.empty() &&
         std::all_of(profile.entries.begin(), profile.entries.end(), [](const EntryRule& rule) {
           return rule.is_directory() && rule.path.text() == "*";
         });
}

template <class Record>
void append(std::string& bytes, const Record& record) {
  bytes.append(static_cast<const char*>(static_cast<const void*>(&record)), sizeof record);
}

}  // namespace

NameRuleTable::NameRuleTable(const std::vector<Profile>& profiles)
    : family_count_(static_cast<std::uint32_t>(profiles.size())) {
  std::vector<Rules> all;
  std::size_t strings_at = profiles.size() * sizeof(FamilyRecord);
  std::size_t rules_at = strings_at;
  for (const Profile& profile : profiles) {
    all.push_back(rules_of(profile));
    strings_at += all.back().size() * sizeof(NameRuleRecord);
  }
  std::string records;
  std::string strings;
  const auto add = [&](const std::string& text) {
    const std::size_t offset = strings_at + strings.size();
    strings.append(text).push_back('\0');
    return static_cast<std::uint32_t>(offset);
  };
  const auto length = [](const std::string& text) {
    return static_cast<std::uint32_t>(text.size());
  };
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    const std::string& name = profiles[i].name;
    append(bytes_, FamilyRecord{add(name), length(name), static_cast<std::uint32_t>(rules_at),
                                static_cast<std::uint32_t>(all[i].size()),
                                entries_are_directories(profiles[i])});
    rules_at += all[i].size() * sizeof(NameRuleRecord);
    for (const auto& [rule, pattern] : all[i]) {
      append(records,
             NameRuleRecord{add(pattern), length(pattern), rule, first_of_all_matches(pattern),
                            last_of_all_matches(pattern)});
    }
  }
  bytes_ += records + strings;
  rules_ = NameRules::over(bytes_, family_count_);
}

bool NameRuleTable::is_mount_only(std::string_view path) const {
  const auto family = rules_.find(take_component(path));
  while (family && !path.empty()) {
    if (rules_.any_applies(*family, NameRule::kMountOnly, take_component(path))) return true;
  }
  return false;
}

}  // namespace cacheshim
