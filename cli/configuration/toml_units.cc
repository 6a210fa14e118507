// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/toml_units.h"

#include "cli/configuration/units.h"
#include "store/sys/toml_reader.h"

namespace cacheshim::cli {

std::optional<std::chrono::seconds> find_duration(TomlReader& reader, std::string_view key) {
  const toml::node* node = reader.find_node(key);
  if (node == nullptr) return std::nullopt;
  std::optional<std::chrono::seconds> duration;
  if (const auto number = node->value_exact<std::int64_t>()) {
    if (*number >= 0) duration = std::chrono::seconds(*number);
  } else if (const auto text = node->value_exact<std::string>()) {
    duration = parse_duration(*text);
  }
  if (!duration)
    reader.report(key, "must be a duration: seconds, or \"90s\", \"10m\", \"2h\", \"7d\"");
  return duration;
}

std::optional<std::uint64_t> find_size(TomlReader& reader, std::string_view key) {
  const toml::node* node = reader.find_node(key);
  if (node == nullptr) return std::nullopt;
  std::optional<std::uint64_t> size;
  if (const auto number = node->value_exact<std::int64_t>()) {
    if (*number >= 0) size = static_cast<std::uint64_t>(*number);
  } else if (const auto text = node->value_exact<std::string>()) {
    size = parse_size(*text);
  }
  if (!size) reader.report(key, "must be a size: bytes, or \"500M\", \"20G\", \"2T\"");
  return size;
}

}  // namespace cacheshim::cli
