// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/printable_text.h"
#include "store/sys/json_text.h"

namespace cacheshim::cli {

void print_row(std::string_view row) { fmt::print("{}\n", printable(row)); }

void print_lines(std::string_view text) { fmt::print("{}", printable_lines(text)); }

void print_json(const nlohmann::ordered_json& value) { fmt::print("{}\n", dump_json(value)); }

std::string format_table(const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::vector<std::string>> rows = cells;
  for (auto& row : rows) {
    for (std::string& cell : row) cell = printable(cell);
  }
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - row[i].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  print_lines(format_table(rows));
}

void print_pairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : pairs) rows.push_back({name, value});
  print_table(rows);
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "-";
}

std::uint64_t count_of(const nlohmann::json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_number_unsigned() ? member->get<std::uint64_t>() : 0;
}

std::string rejection_text(const nlohmann::json& rejected) {
  const auto times = count_of(rejected, "times");
  const auto equal = count_of(rejected, "equal");
  const auto jobs = count_of(rejected, "jobs");
  std::string text = fmt::format("{} time{} by {} job{}", times + equal,
                                 times + equal == 1 ? "" : "s", jobs, jobs == 1 ? "" : "s");
  if (equal > 0) text += fmt::format(", {} with equal content", equal);
  const auto replaced = count_of(rejected, "replaced");
  if (replaced > 0) text += ", replaced " + format_time(static_cast<std::int64_t>(replaced));
  return text;
}

std::string format_time(std::int64_t seconds) {
  if (seconds == 0) return "-";
  // Reuses the last result: in a long table, most times are equal to the time in the previous row.
  thread_local std::pair<std::int64_t, std::string> last{0, ""};
  if (last.first == seconds) return last.second;
  const time_t time = seconds;
  struct tm parts {};
  std::array<char, 32> text{};
  if (::localtime_r(&time, &parts) == nullptr) return "-";
  last = {seconds,
          {text.data(), ::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts)}};
  return last.second;
}

}  // namespace cacheshim::cli
