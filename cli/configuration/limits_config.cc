// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/limits_config.h"

#include "store/sys/toml_reader.h"

namespace cacheshim::cli {

LimitValues read_limits(TomlReader& root, TomlProblem& problem) {
  LimitValues limits = standard_limits();
  const toml::table* table = root.find_table("limits");
  if (table == nullptr) return limits;
  TomlReader reader(*table, "limits", problem);
  for (std::size_t i = 0; i < limits.size(); ++i) {
    const auto number = reader.find_integer(kLimitRows[i].key);
    if (!number) continue;
    if (*number < 0) reader.report(kLimitRows[i].key, "must not be negative; 0 means no limit");
    limits[i] = static_cast<std::uint64_t>(*number);
  }
  reader.finish();
  return limits;
}

}  // namespace cacheshim::cli
