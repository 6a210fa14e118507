// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

// Strict reading of TOML: every key is asked for by name, and what nobody asked for is an error.
// Messages read "FILE:LINE: reason".
namespace cacheshim {

// Collects the first thing that is wrong with a file.
class TomlProblem {
 public:
  explicit TomlProblem(std::string_view origin) : origin_(origin) {}
  explicit operator bool() const { return !message_.empty(); }
  const std::string& message() const { return message_; }
  // Keeps the first report. Line 0 stands for the whole file.
  void report(std::uint32_t line, std::string_view reason);

 private:
  std::string origin_;
  std::string message_;
};

// Parses `text`; reports to `problem` and returns nothing where it is no TOML.
std::optional<toml::table> parse_toml(std::string_view text, TomlProblem& problem);

// Takes the values of one table. A finder returns nothing for a missing key, and for a value of
// another type, which it also reports.
class TomlReader {
 public:
  // `name` is the table's, as "entry" or empty for the root. Everything must outlive the reader.
  TomlReader(const toml::table& table, std::string_view name, TomlProblem& problem)
      : table_(table), name_(name), problem_(problem) {}

  std::optional<std::string> find_string(std::string_view key);
  std::optional<std::vector<std::string>> find_strings(std::string_view key);
  std::optional<std::int64_t> find_integer(std::string_view key);
  std::optional<bool> find_bool(std::string_view key);
  const toml::table* find_table(std::string_view key);
  // The tables of an array, "[[key]]"; none where it is missing.
  std::vector<const toml::table*> find_tables(std::string_view key);
  // The value of any type, or null; for keys with several types.
  const toml::node* find_node(std::string_view key);

  // Where `key` stands, or the table does where it is missing.
  std::uint32_t line_of(std::string_view key) const;
  void report(std::string_view key, std::string_view reason);
  // Reports every key that no finder was asked for.
  void finish();

 private:
  std::string full_name(std::string_view key) const;

  const toml::table& table_;
  std::string name_;
  TomlProblem& problem_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace cacheshim
