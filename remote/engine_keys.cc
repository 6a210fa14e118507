// SPDX-License-Identifier: Apache-2.0
#include "remote/engine_keys.h"

#include <fmt/format.h>

namespace cacheshim::remote {
namespace {

std::string key_of(const Settings& settings, const char* kind, std::string_view name) {
  return fmt::format("{}/{}/{}", kind, settings.generation, name);
}

std::optional<std::string> name_of(const Settings& settings, const char* kind,
                                   std::string_view key) {
  const std::string prefix = key_of(settings, kind, "");
  if (!key.starts_with(prefix)) return std::nullopt;
  return std::string(key.substr(prefix.size()));
}

constexpr const char* kEntries = "entries";
constexpr const char* kPacks = "packs";

}  // namespace

std::string object_key(const Settings& settings, std::string_view unit) {
  return key_of(settings, kEntries, unit);
}

std::optional<std::string> unit_of_key(const Settings& settings, std::string_view key) {
  return name_of(settings, kEntries, key);
}

std::string pack_key(const Settings& settings, std::string_view pack) {
  return key_of(settings, kPacks, pack);
}

std::optional<std::string> pack_of_key(const Settings& settings, std::string_view key) {
  return name_of(settings, kPacks, key);
}

}  // namespace cacheshim::remote
