// SPDX-License-Identifier: Apache-2.0
#include "learn/name_shapes.h"

#include <algorithm>
#include <charconv>
#include <regex>

namespace cacheshim::learn {
namespace {

constexpr char kFinal = '\1';  // replaces the final name within a temporary name
const char* const kUuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
constexpr std::size_t kKeyHex = 8;
constexpr std::size_t kKeyLength = 16;
constexpr std::size_t kMostNames = 2000;  // the most names that are compared with one another
// The longest part whose characters each become '?'. A longer part becomes one '*'.
constexpr std::size_t kLongestKept = 40;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether the text has both letters and digits, or at least one upper-case and two lower-case
// letters. A word that is all in lower case or all in upper case has neither.
bool looks_random(std::string_view text) {
  const auto count = [&](auto is) { return std::count_if(text.begin(), text.end(), is); };
  const auto digits = count(is_digit);
  const auto upper = count([](char c) { return c >= 'A' && c <= 'Z'; });
  const auto lower = count([](char c) { return c >= 'a' && c <= 'z'; });
  const auto size = static_cast<std::ptrdiff_t>(text.size());
  return (digits > 0 && digits < size) || (upper > 0 && lower > 0 && upper < size - 1);
}

// Replaces each character with '?', except the hyphens of a UUID. Returns "*" for more than kLongestKept characters.
std::string question_marks(std::string text) {
  if (text.size() > kLongestKept) return "*";
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c != '-'; }, '?');
  return text;
}

std::string replaced(const std::string& text, const std::regex& part) {
  std::string result;
  auto rest = text.cbegin();
  for (std::sregex_iterator at(text.begin(), text.end(), part), end; at != end; ++at) {
    const std::ssub_match group = (*at)[at->size() > 1 ? 1 : 0];
    result.append(rest, group.first);
    result += question_marks(group.str());
    rest = group.second;
  }
  return result.append(rest, text.cend());
}

// Replaces numbers that are process ids, or that look like process ids, with '*'.
std::string without_ids(const std::string& text, const std::set<pid_t>& threads) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end == at) {
      result += text[at++];
      continue;
    }
    pid_t id = 0;
    (void)std::from_chars(text.data() + at, text.data() + end, id);
    const bool is_part =
        (at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]));
    const bool is_id = threads.contains(id) || (!is_part && end - at >= 3);
    result += is_id ? "*" : text.substr(at, end - at);
    at = end;
  }
  return result;
}

// Replaces the random part at the end of the name, or before its suffix: eight characters, as Python's tempfile makes
// them, or six, as mkstemps(3) makes them. In the expressions, "\1" is kFinal, not a back-reference.
std::string without_random_end(const std::string& text) {
  static const std::regex python("(?:tmp|\1)([a-z0-9_]{8})(?=\\.|$)");
  if (std::regex_search(text, python)) return replaced(text, python);
  static const std::regex six("(?:^|[._-]|tmp|\1)([A-Za-z0-9]{6})(?:\\.[a-z]{1,5})?$");
  std::smatch match;
  if (!std::regex_search(text, match, six) || !looks_random(match[1].str())) return text;
  return replaced(text, six);
}

// Merges two shapes that differ in one part. This part becomes one '?' per character if both shapes
// have the same length, otherwise '*'. Returns nothing if fewer than 3 characters are common, or if
// the shapes have the same length and the part of `a` contains anything but letters, digits and '?'.
std::optional<std::string> merged(const std::string& a, const std::string& b) {
  const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto front = static_cast<std::size_t>(differs.first - a.begin());
  const std::size_t shorter = std::min(a.size(), b.size());
  std::size_t back = 0;
  while (back < shorter - front && a[a.size() - 1 - back] == b[b.size() - 1 - back]) ++back;
  if (front + back < 3) return std::nullopt;
  if (a.size() != b.size()) return a.substr(0, front) + "*" + a.substr(a.size() - back);
  std::string result = a;
  for (std::size_t i = front; i < a.size() - back; ++i) {
    if (!is_word(a[i]) && a[i] != '?') return std::nullopt;
    result[i] = '?';
  }
  return result;
}

std::string escaped(char c) {
  const bool is_special = std::string_view("*?[\\").find(c) != std::string_view::npos;
  return (is_special ? "\\" : "") + std::string(1, c);
}

}  // namespace

std::string literal(std::string_view name) {
  std::string pattern;
  for (const char c : name) pattern += c > ' ' && c < 127 ? escaped(c) : "?";
  return pattern;
}

std::optional<std::size_t> end_of_key(std::string_view name) {
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at;
    while (end < name.size() && is_word(name[end])) ++end;
    const std::string_view part = name.substr(at, end - at);
    const bool has_digit = std::any_of(part.begin(), part.end(), is_digit);
    const bool is_all_hex = std::all_of(part.begin(), part.end(), is_hex);
    if (has_digit && (part.size() >= kKeyLength || (is_all_hex && part.size() >= kKeyHex)))
      return end;
    at = std::max(end, at + 1);
  }
  return std::nullopt;
}

bool is_fan_out(std::string_view name) {
  return name.size() <= 2 && std::all_of(name.begin(), name.end(), is_hex);
}

std::string shape_of(const TemporaryName& temporary, const std::set<pid_t>& threads) {
  std::string shape = temporary.name;
  const auto at = temporary.final_name.empty() || temporary.name == temporary.final_name
                      ? std::string::npos
                      : shape.find(temporary.final_name);
  if (at != std::string::npos) shape.replace(at, temporary.final_name.size(), 1, kFinal);
  static const std::regex uuid(kUuid);
  static const std::regex hex("[0-9a-f]{16,}");
  shape = without_random_end(replaced(replaced(shape, uuid), hex));
  shape = without_ids(shape, threads);
  std::replace(shape.begin(), shape.end(), kFinal, '*');
  std::replace_if(
      shape.begin(), shape.end(),
      [](char c) { return c <= ' ' || c == '[' || c == '\\' || c == 127; }, '?');
  return shape;
}

std::vector<std::string> shapes_of(const std::vector<TemporaryName>& names,
                                   const std::set<pid_t>& threads) {
  std::vector<std::string> shapes;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    std::string shape = shape_of(names[i], threads);
    if (std::find(shapes.begin(), shapes.end(), shape) != shapes.end()) continue;
    bool is_merged = false;
    for (std::string& other : shapes) {
      const auto both = merged(other, shape);
      if (!both) continue;
      other = *both;
      is_merged = true;
      break;
    }
    if (!is_merged) shapes.push_back(std::move(shape));
  }
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

std::optional<std::string> common_pattern(const std::set<std::string>& names) {
  if (names.empty()) return std::nullopt;
  std::string_view front = *names.begin();
  std::string_view back = front;
  for (const std::string& name : names) {
    front = front.substr(
        0, static_cast<std::size_t>(
               std::mismatch(front.begin(), front.end(), name.begin(), name.end()).first -
               front.begin()));
    const auto same =
        std::mismatch(back.rbegin(), back.rend(), name.rbegin(), name.rend()).first - back.rbegin();
    back = back.substr(back.size() - static_cast<std::size_t>(same));
  }
  const auto key = end_of_key(front);
  if (names.size() == 1 && !key) return literal(front);
  if (names.size() == 1) back = front.substr(*key);
  // Keeps only whole words: the common beginning must end at a separator, and the common ending
  // must begin at one.
  const auto front_end = front.find_last_of("._-");
  front = key || front_end == front.npos ? "" : front.substr(0, front_end + 1);
  const auto back_begin = back.find_first_of("._-");
  back = back_begin == back.npos ? "" : back.substr(back_begin);
  if (std::none_of(front.begin(), front.end(), is_word)) front = "";
  if (front.empty() && back.empty()) return std::nullopt;
  return literal(front) + "*" + literal(back);
}

}  // namespace cacheshim::learn
