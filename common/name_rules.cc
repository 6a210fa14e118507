// SPDX-License-Identifier: Apache-2.0
#include "common/name_rules.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cacheshim {
namespace {

bool is_special(char c) { return c == '*' || c == '?' || c == '[' || c == '\\'; }

// The kind of the pattern's next item.
enum class Item { kByte, kAnyByte, kAnything };

// Consumes the bracket expression at `at` and returns kAnyByte: the expression counts as any byte. Returns kAnything if
// the expression contains another '[' or '\', or has no end.
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

// Returns the earliest position in `text` at which the part of the pattern after a star can match;
// null if there is none.
const char* skip_to(const char* at, const char* end, const char* text, const char* text_end) {
  if (at == end || is_special(*at)) return text;
  return static_cast<const char*>(
      std::memchr(text, *at, static_cast<std::size_t>(text_end - text)));
}

}  // namespace

// Uses no recursion: only the last star that has been reached needs backtracking.
bool may_match_pattern(std::string_view pattern, std::string_view name) {
  const char* at = pattern.data();
  const char* const end = at + pattern.size();
  const char* text = name.data();
  const char* const text_end = text + name.size();
  const char* star = nullptr;  // the part of the pattern after the last star that has been reached
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

// Returns NUL if the pattern has a bracket expression or an escape: the pattern's last character
// then need not occur in the name.
char last_of_all_matches(std::string_view pattern) {
  for (const char c : pattern) {
    if (c == '[' || c == '\\') return '\0';
  }
  return pattern.empty() || is_special(pattern.back()) ? '\0' : pattern.back();
}

std::uint32_t NameRules::word(std::uint64_t offset) const {
  const auto* const from = static_cast<const std::uint32_t*>(static_cast<const void*>(bytes_.data() + offset));
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}

// The bytes may be a mapping of a file that another process changes at any time. So each field is read once, into a
// copy, and checked again whenever it is used. Copying a record takes longer than most searches for one, so find() and
// any_applies() first read the field that excludes most records.
template <class Record>
Record NameRules::load(std::uint64_t offset) const {
  static_assert(sizeof(Record) % sizeof(std::uint32_t) == 0);
  constexpr std::size_t kWords = sizeof(Record) / sizeof(std::uint32_t);
  std::uint32_t words[kWords];
  for (std::size_t i = 0; i < kWords; ++i) words[i] = word(offset + i * sizeof(std::uint32_t));
  Record record;
  std::memcpy(&record, words, sizeof record);
  return record;
}

NameRules NameRules::over(std::string_view bytes, std::uint32_t family_count) {
  NameRules rules;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(FamilyRecord) == 0;
  if (!is_aligned || bytes.size() / sizeof(FamilyRecord) < family_count) return rules;
  rules.bytes_ = bytes;
  rules.count_ = family_count;
  return rules.is_valid() ? rules : NameRules();
}

std::optional<std::string_view> NameRules::text(std::uint32_t offset, std::uint32_t length) const {
  if (!has(offset, length)) return std::nullopt;
  return std::string_view(bytes_.data() + offset, length);
}

bool NameRules::has_rules(const FamilyRecord& family) const {
  return family.rules % alignof(NameRuleRecord) == 0 &&
         has(family.rules, std::uint64_t{family.rule_count} * sizeof(NameRuleRecord));
}

std::uint64_t NameRules::rule_offset(const FamilyRecord& family, std::uint32_t number) {
  return family.rules + number * sizeof(NameRuleRecord);
}

NameRuleRecord NameRules::rule(const FamilyRecord& family, std::uint32_t number) const {
  return load<NameRuleRecord>(rule_offset(family, number));
}

// Checks the ranges of all records and strings. Also refuses a table whose records or strings overlap so much that a
// search would take time quadratic in the table's size.
bool NameRules::is_valid() const {
  std::uint64_t used = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const auto family = load<FamilyRecord>(i * sizeof(FamilyRecord));
    if (!has(family.name, family.name_length) || !has_rules(family)) return false;
    used += family.name_length + std::uint64_t{family.rule_count} * sizeof(NameRuleRecord);
    if (used > bytes_.size()) return false;
    for (std::uint32_t j = 0; j < family.rule_count; ++j) {
      const NameRuleRecord record = rule(family, j);
      used += record.pattern_length;
      if (!has(record.pattern, record.pattern_length) || used > bytes_.size()) return false;
    }
  }
  return true;
}

std::optional<FamilyRecord> NameRules::find(std::string_view family) const {
  for (std::uint32_t i = 0; i < count_; ++i) {
    const std::uint64_t offset = i * sizeof(FamilyRecord);
    if (word(offset + offsetof(FamilyRecord, name_length)) != family.size()) continue;
    const auto record = load<FamilyRecord>(offset);
    if (text(record.name, record.name_length) == family) return record;
  }
  return std::nullopt;
}

bool NameRules::any_applies(const FamilyRecord& family, NameRule wanted, std::string_view name) const {
  if (!has_rules(family)) return true;
  for (std::uint32_t i = 0; i < family.rule_count; ++i) {
    const std::uint64_t kind = rule_offset(family, i) + offsetof(NameRuleRecord, rule);
    if (word(kind) != static_cast<std::uint32_t>(wanted)) continue;
    const NameRuleRecord record = rule(family, i);
    if (record.rule != wanted || (record.first != '\0' && record.first != name.front()) ||
        (record.last != '\0' && record.last != name.back())) {
      continue;
    }
    const auto pattern = text(record.pattern, record.pattern_length);
    if (!pattern || may_match_pattern(*pattern, name)) return true;
  }
  return false;
}

}  // namespace cacheshim
