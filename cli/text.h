// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Text output for users, on stdout.
namespace cacheshim::cli {

// All output to stdout goes through these functions, which make it printable (common/printable.h):
// names and replies may come from other users. print_row() adds a newline, and print_text() formats a
// row; print_lines() leaves the text's own newlines unchanged; print_json() prints one value on one
// line.
void print_row(std::string_view row);
void print_lines(std::string_view text);
void print_json(const nlohmann::ordered_json& value);
template <class... Args>
void print_text(fmt::format_string<Args...> format, Args&&... args) {
  print_row(fmt::format(format, std::forward<Args>(args)...));
}

// Prints "name    value" lines with aligned values.
void print_pairs(const std::vector<std::pair<std::string, std::string>>& pairs);

// print_table() prints aligned columns, separated by at least two blanks; the last column is not
// padded. format_table() returns this text. Both make the cells printable.
void print_table(const std::vector<std::vector<std::string>>& rows);
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// Return a member of an object; "-" or 0 if the member is missing, null or of another type.
std::string text_of(const nlohmann::json& object, const char* key);
std::uint64_t count_of(const nlohmann::json& object, const char* key);

// Describes how often an entry was rejected. `rejected`: the entry's object in the daemon's reply
// (`status`, `explain`).
std::string rejection_text(const nlohmann::json& rejected);

// Formats seconds since 1970 in local time, "2025-01-31 12:00:05"; "-" for 0.
std::string format_time(std::int64_t seconds);

}  // namespace cacheshim::cli
