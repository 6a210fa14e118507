// SPDX-License-Identifier: Apache-2.0
#include "common/name_rules.h"

#include <cstddef>
#include <cstring>

namespace cacheshim {
namespace {

bool is_special(char c) { return c == '*' || c == '?' || c == '[' || c == '\\'; }

// The kind of the pattern's next item.
enum class Item { kByte, kAnyByte, kAnything };

// Consumes the bracket expression at `at`. An expression without classes or escapes matches any
// byte.
Item take_bracket(const char*& at, const char* end) {
  const char* close = at + 1;
  if (close != end && (*close == '!' || *close == '^')) ++close;
  if (close != end && *close == ']') ++close;  // a ']' in first position is a member of the set
  for (; close != end && *close != ']'; ++close) {
    if (*close == '[' || *close == '\\') return Item::kAnything;
  }
  if (close == end) return Item::kAnything;
  at = close + 1;
  return Item::kAnyByte;
}

Item take_item(const char*& at, const char* end, char& byte) {
  if (*at == '[') return take_bracket(at, end);
  if (*at == '?') {
    ++at;
    return Item::kAnyByte;
  }
  if (*at == '\\' && at + 1 != end) ++at;
  byte = *at++;
  return Item::kByte;
}

// Returns the earliest position at which the part after a star can begin; null if there is none.
const char* skip_to(const char* at, const char* end, const char* text, const char* text_end) {
  if (at == end || is_special(*at)) return text;
  return static_cast<const char*>(
      std::memchr(text, *at, static_cast<std::size_t>(text_end - text)));
}

}  // namespace

// Uses no recursion: of several stars, only the last one needs backtracking.
bool may_match_pattern(std::string_view pattern, std::string_view name) {
  const char* at = pattern.data();
  const char* const end = at + pattern.size();
  const char* text = name.data();
  const char* const text_end = text + name.size();
  const char* star = nullptr;  // the part of the pattern after the last star
  const char* tried = nullptr;
  for (;;) {
    if (at == end && text == text_end) return true;
    if (at != end && *at == '*') {
      star = ++at;
      tried = text = skip_to(at, end, text, text_end);
      if (text == nullptr) return false;
      continue;
    }
    if (at != end && text != text_end) {
      char byte = 0;
      const Item item = take_item(at, end, byte);
      if (item == Item::kAnything) return true;
      if (item == Item::kAnyByte || byte == *text) {
        ++text;
        continue;
      }
    }
    if (star == nullptr || tried == text_end) return false;
    at = star;
    tried = text = skip_to(at, end, tried + 1, text_end);
    if (text == nullptr) return false;
  }
}

char first_of_all_matches(std::string_view pattern) {
  return pattern.empty() || is_special(pattern.front()) ? '\0' : pattern.front();
}

// Returns NUL if the pattern has a bracket expression or escape: its last character need not occur
// in the name.
char last_of_all_matches(std::string_view pattern) {
  for (const char c : pattern) {
    if (c == '[' || c == '\\') return '\0';
  }
  return pattern.empty() || is_special(pattern.back()) ? '\0' : pattern.back();
}

NameRules NameRules::over(std::string_view bytes, std::uint32_t family_count) {
  NameRules rules;
  if (bytes.size() / sizeof(FamilyRecord) < family_count) return rules;
  rules.bytes_ = bytes;
  rules.families_ = static_cast<const FamilyRecord*>(static_cast<const void*>(bytes.data()));
  for (std::uint32_t i = 0; i < family_count; ++i) {
    if (!rules.is_valid(rules.families_[i])) return {};
  }
  rules.count_ = family_count;
  return rules;
}

const NameRuleRecord* NameRules::rules_of(const FamilyRecord& family) const {
  return static_cast<const NameRuleRecord*>(static_cast<const void*>(bytes_.data() + family.rules));
}

bool NameRules::is_valid(const FamilyRecord& family) const {
  const std::size_t size = bytes_.size();
  const auto has = [size](std::uint64_t offset, std::uint64_t length) {
    return offset + length <= size;
  };
  if (!has(family.name, family.name_length) || family.rules % alignof(NameRuleRecord) != 0 ||
      !has(family.rules, std::uint64_t{family.rule_count} * sizeof(NameRuleRecord))) {
    return false;
  }
  for (std::uint32_t i = 0; i < family.rule_count; ++i) {
    const NameRuleRecord& rule = rules_of(family)[i];
    if (!has(rule.pattern, rule.pattern_length)) return false;
  }
  return true;
}

const FamilyRecord* NameRules::find(std::string_view family) const {
  for (std::uint32_t i = 0; i < count_; ++i) {
    const FamilyRecord& record = families_[i];
    if (record.name_length != family.size()) continue;
    if (std::memcmp(bytes_.data() + record.name, family.data(), family.size()) == 0) return &record;
  }
  return nullptr;
}

bool NameRules::any_applies(const FamilyRecord& family, NameRule rule,
                            std::string_view name) const {
  for (std::uint32_t i = 0; i < family.rule_count; ++i) {
    const NameRuleRecord& record = rules_of(family)[i];
    if (record.rule != rule || (record.first != '\0' && record.first != name.front()) ||
        (record.last != '\0' && record.last != name.back())) {
      continue;
    }
    if (may_match_pattern({bytes_.data() + record.pattern, record.pattern_length}, name)) {
      return true;
    }
  }
  return false;
}

}  // namespace cacheshim
