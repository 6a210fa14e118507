// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

// Strict reading of TOML: callers request every key by name, and any other key is an error.
// Messages read "FILE:LINE: reason".
namespace cacheshim {

// Keeps the first error of a file.
class TomlProblem {
 public:
  explicit TomlProblem(std::string_view origin) : origin_(origin) {}
  explicit operator bool() const { return !message_.empty(); }
  const std::string& message() const { return message_; }
  // Ignores all reports after the first. Line 0 stands for the whole file.
  void report(std::uint32_t line, std::string_view reason);

 private:
  std::string origin_;
  std::string message_;
};

// Parses `text`; if it is not TOML, reports this to `problem` and returns nothing.
std::optional<toml::table> parse_toml(std::string_view text, TomlProblem& problem);

// Reads the values of one table. The find functions return nothing for a missing key or for a value of another type,
// and report an error for the latter.
class TomlReader {
 public:
  // `name` is the table's name, such as "entry", or empty for the root. `table` and `problem` must
  // outlive the reader.
  TomlReader(const toml::table& table, std::string_view name, TomlProblem& problem)
      : table_(table), name_(name), problem_(problem) {}

  std::optional<std::string> find_string(std::string_view key);
  std::optional<std::vector<std::string>> find_strings(std::string_view key);
  std::optional<std::int64_t> find_integer(std::string_view key);
  std::optional<bool> find_bool(std::string_view key);
  const toml::table* find_table(std::string_view key);
  // Returns the tables of the array "[[key]]"; none if the key is missing.
  std::vector<const toml::table*> find_tables(std::string_view key);
  // Returns the value, of any type; null if the key is missing. For keys whose values may have
  // several types.
  const toml::node* find_node(std::string_view key);

  // Returns the line of `key`, or the line of the table if the key is missing.
  std::uint32_t line_of(std::string_view key) const;
  void report(std::string_view key, std::string_view reason);
  // Reports every key that no find function has requested.
  void finish();

 private:
  std::string full_name(std::string_view key) const;

  const toml::table& table_;
  std::string name_;
  TomlProblem& problem_;
  std::set<std::string, std::less<>> requested_;
};

}  // namespace cacheshim
