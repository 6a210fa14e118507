// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace cacheshim::cli {
namespace {

struct Unit {
  char letter;
  std::int64_t seconds;
  const char* name;
};

constexpr Unit kUnits[] = {{'w', 7 * 86400, nullptr},  // accepted, but never printed
                           {'d', 86400, "d"},
                           {'h', 3600, "h"},
                           {'m', 60, "min"},
                           {'s', 1, "s"}};

}  // namespace

std::optional<std::chrono::seconds> parse_duration(std::string_view text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number < 0) return std::nullopt;
  if (rest == end) return std::chrono::seconds(number);
  if (end - rest != 1) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (unit.letter != *rest) continue;
    if (number > std::numeric_limits<std::int64_t>::max() / unit.seconds) return std::nullopt;
    return std::chrono::seconds(number * unit.seconds);
  }
  return std::nullopt;
}

std::optional<std::chrono::milliseconds> parse_timeout(std::string_view text) {
  constexpr double kLongestMs = 10 * 365 * 86400e3;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  const std::string_view letters(rest, static_cast<std::size_t>(end - rest));
  double unit_ms = letters.empty() ? 1000 : letters == "ms" ? 1 : 0;
  for (const Unit& unit : kUnits) {
    if (letters == std::string_view(&unit.letter, 1)) {
      unit_ms = 1000 * static_cast<double>(unit.seconds);
    }
  }
  if (unit_ms == 0 || number * unit_ms > kLongestMs) return std::nullopt;
  return std::chrono::milliseconds(std::llround(number * unit_ms));
}

std::string timeout_problem(const std::string& text) {
  if (parse_timeout(text)) return "";
  return fmt::format(
      "'{}' is no duration; give seconds, or a number with a unit: 500ms, 1.5s, 10m, 2h", text);
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  if (rest == end) return number;
  constexpr std::string_view kLetters = "KMGTP";
  const auto power = kLetters.find(*rest);
  if (end - rest != 1 || power == kLetters.npos) return std::nullopt;
  const unsigned shift = 10 * (static_cast<unsigned>(power) + 1);
  if (number > (std::numeric_limits<std::uint64_t>::max() >> shift)) return std::nullopt;
  return number << shift;
}

std::string format_duration(std::chrono::seconds duration) {
  std::int64_t rest = duration.count();
  std::string text;
  int parts = 0;
  for (const Unit& unit : kUnits) {
    if (unit.name == nullptr) continue;
    const std::int64_t count = rest / unit.seconds;
    // A zero unit counts as one of the two units, so one day and five seconds become "1 d": "1 d 5 s"
    // would suggest an exact value.
    if (parts > 0) ++parts;
    if (count > 0) {
      text += fmt::format("{}{} {}", text.empty() ? "" : " ", count, unit.name);
      if (parts == 0) parts = 1;
    }
    rest %= unit.seconds;
    if (parts == 2) break;
  }
  return text.empty() ? "0 s" : text;
}

std::string format_size(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}) {
    if (value < 1023.95) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string format_count(std::uint64_t count, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", count, count == 1 ? singular : plural);
}

}  // namespace cacheshim::cli
