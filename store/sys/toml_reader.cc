// SPDX-License-Identifier: Apache-2.0
#include "store/sys/toml_reader.h"

#include <fmt/format.h>

namespace cacheshim {
namespace {

// Returns the text of a string node; nothing for other nodes, and for text with a NUL, which C
// functions would truncate.
std::optional<std::string> text_of(const toml::node& node) {
  auto text = node.value_exact<std::string>();
  if (text && text->find('\0') != std::string::npos) return std::nullopt;
  return text;
}

}  // namespace

void TomlProblem::report(std::uint32_t line, std::string_view reason) {
  if (!message_.empty()) return;
  message_ = line == 0 ? fmt::format("{}: {}", origin_, reason)
                       : fmt::format("{}:{}: {}", origin_, line, reason);
}

std::optional<toml::table> parse_toml(std::string_view text, TomlProblem& problem) {
  // Debian's build of toml++ reports errors by exceptions, which are caught here.
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    problem.report(error.source().begin.line, error.description());
    return std::nullopt;
  }
}

std::string TomlReader::full_name(std::string_view key) const {
  return name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key);
}

std::uint32_t TomlReader::line_of(std::string_view key) const {
  const toml::node* node = table_.get(key);
  return node != nullptr ? node->source().begin.line : table_.source().begin.line;
}

void TomlReader::report(std::string_view key, std::string_view reason) {
  problem_.report(line_of(key), fmt::format("{}: {}", full_name(key), reason));
}

const toml::node* TomlReader::find_node(std::string_view key) {
  requested_.emplace(key);
  return table_.get(key);
}

std::optional<std::string> TomlReader::find_string(std::string_view key) {
  const toml::node* node = find_node(key);
  if (node == nullptr) return std::nullopt;
  auto text = text_of(*node);
  if (!text) report(key, "must be a string");
  return text;
}

std::optional<std::vector<std::string>> TomlReader::find_strings(std::string_view key) {
  const toml::node* node = find_node(key);
  if (node == nullptr) return std::nullopt;
  const toml::array* array = node->as_array();
  std::vector<std::string> texts;
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    auto text = text_of(*array->get(i));
    if (!text) {
      array = nullptr;
      break;
    }
    texts.push_back(*std::move(text));
  }
  if (array != nullptr) return texts;
  report(key, "must be an array of strings");
  return std::nullopt;
}

std::optional<std::int64_t> TomlReader::find_integer(std::string_view key) {
  const toml::node* node = find_node(key);
  if (node == nullptr) return std::nullopt;
  const auto number = node->value_exact<std::int64_t>();
  if (!number) report(key, "must be an integer");
  return number;
}

std::optional<bool> TomlReader::find_bool(std::string_view key) {
  const toml::node* node = find_node(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->value_exact<bool>();
  if (!value) report(key, "must be true or false");
  return value;
}

std::vector<const toml::table*> TomlReader::find_tables(std::string_view key) {
  const toml::node* node = find_node(key);
  std::vector<const toml::table*> tables;
  if (node == nullptr) return tables;
  if (const toml::array* array = node->as_array();
      array != nullptr && array->is_array_of_tables()) {
    for (const toml::node& table : *array) tables.push_back(table.as_table());
    return tables;
  }
  report(key, "must be an array of tables, [[" + std::string(key) + "]]");
  return tables;
}

const toml::table* TomlReader::find_table(std::string_view key) {
  const toml::node* node = find_node(key);
  if (node == nullptr) return nullptr;
  if (node->as_table() == nullptr) report(key, "must be a table");
  return node->as_table();
}

void TomlReader::finish() {
  for (const auto& [key, node] : table_) {
    const std::string_view name = key;
    if (requested_.find(name) != requested_.end()) continue;
    problem_.report(node.source().begin.line, fmt::format("unknown key '{}'", full_name(name)));
  }
}

}  // namespace cacheshim
