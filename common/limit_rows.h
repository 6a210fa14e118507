// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

// The limits on a daemon's resources that one user may consume: the rows of limits.def.
namespace cacheshim {

enum class Limit : std::uint8_t {
#define CACHESHIM_LIMIT(name, key, default_value, error, what, effect) k##name,
#include "common/limits.def"
#undef CACHESHIM_LIMIT
};

struct LimitRow {
  std::string_view key;
  std::uint64_t default_value;
  std::string_view error_name;  // "none" if the limit makes no call fail
  std::string_view what;
  std::string_view effect;

  constexpr bool is_size() const { return key.ends_with("_size"); }  // whether the value is in bytes
};

inline constexpr auto kLimitRows = std::to_array<LimitRow>({
#define CACHESHIM_LIMIT(name, key, default_value, error, what, effect) {#key, default_value, #error, what, effect},
#include "common/limits.def"
#undef CACHESHIM_LIMIT
});

namespace limit_errors {
inline constexpr int none = 0;
}

// Returns the errno value of a call that the limit refuses; 0 if the limit refuses no call.
constexpr int error_of(Limit limit) {
  using limit_errors::none;
  constexpr auto kErrors = std::to_array<int>({
#define CACHESHIM_LIMIT(name, key, default_value, error, what, effect) error,
#include "common/limits.def"
#undef CACHESHIM_LIMIT
  });
  return kErrors[static_cast<std::size_t>(limit)];
}

constexpr const LimitRow& row_of(Limit limit) { return kLimitRows[static_cast<std::size_t>(limit)]; }

// A value for each limit, in the order of kLimitRows. 0: there is no limit.
using LimitValues = std::array<std::uint64_t, kLimitRows.size()>;

constexpr LimitValues default_limits() {
  LimitValues values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = kLimitRows[i].default_value;
  return values;
}

constexpr std::uint64_t& value_of(LimitValues& values, Limit limit) {
  return values[static_cast<std::size_t>(limit)];
}

constexpr bool have_texts(const auto& rows) {
  for (const LimitRow& row : rows) {
    if (row.what.empty() || row.effect.empty() || row.default_value == 0) return false;
  }
  return true;
}
static_assert(have_texts(kLimitRows));

}  // namespace cacheshim
