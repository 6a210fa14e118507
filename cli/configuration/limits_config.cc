// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/limits_config.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cli/configuration/toml_units.h"
#include "store/sys/toml_reader.h"

namespace cacheshim::cli {

namespace {

std::optional<std::uint64_t> find_limit(TomlReader& reader, const LimitRow& row) {
  if (row.is_size()) return find_size(reader, row.key);
  const auto number = reader.find_integer(row.key);
  if (!number) return std::nullopt;
  if (*number < 0) reader.report(row.key, "must not be negative; 0 means no limit");
  return static_cast<std::uint64_t>(*number);
}

}  // namespace

LimitValues read_limits(TomlReader& root, TomlProblem& problem) {
  LimitValues limits = default_limits();
  const toml::table* table = root.find_table("limits");
  if (table == nullptr) return limits;
  TomlReader reader(*table, "limits", problem);
  for (std::size_t i = 0; i < limits.size(); ++i)
    limits[i] = find_limit(reader, kLimitRows[i]).value_or(limits[i]);
  reader.finish();
  return limits;
}

}  // namespace cacheshim::cli
