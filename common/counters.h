// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cacheshim {

// Counts of events since the daemon mounted the file system. Any thread may increment a member. A reader may see two
// increments in either order.
struct Counters {
#define CACHESHIM_COUNTER(name, section, unit, help) std::atomic<std::uint64_t> name{0};
#define CACHESHIM_READING(name, section, unit, help)
#include "common/counters.def"
#undef CACHESHIM_COUNTER
#undef CACHESHIM_READING
};

// Values that are computed when the counters are read.
struct CounterReadings {
#define CACHESHIM_COUNTER(name, section, unit, help)
#define CACHESHIM_READING(name, section, unit, help) std::uint64_t name;
#include "common/counters.def"
#undef CACHESHIM_COUNTER
#undef CACHESHIM_READING
};

enum class CounterSection { kFiles, kFlights, kRemote, kPublishing, kLocks, kDaemon };
enum class CounterUnit { kEvents, kBytes, kNow };  // kNow: the current number, not a sum

constexpr std::string_view to_string(CounterSection section) {
  switch (section) {
    case CounterSection::kFiles:
      return "Files";
    case CounterSection::kFlights:
      return "Single flight";
    case CounterSection::kRemote:
      return "Remote tier";
    case CounterSection::kPublishing:
      return "Publishing";
    case CounterSection::kLocks:
      return "Locks";
    case CounterSection::kDaemon:
      return "The daemon";
  }
  return "";
}

struct CounterRow {
  std::string_view name;
  CounterSection section;
  CounterUnit unit;
  std::string_view help;
};

inline constexpr auto kCounterRows = std::to_array<CounterRow>({
#define CACHESHIM_COUNTER(name, section, unit, help) \
  {#name, CounterSection::section, CounterUnit::unit, help},
#define CACHESHIM_READING CACHESHIM_COUNTER
#include "common/counters.def"
#undef CACHESHIM_COUNTER
#undef CACHESHIM_READING
});

using CounterValues = std::array<std::uint64_t, kCounterRows.size()>;

// Returns the values in the order of kCounterRows.
inline CounterValues read_counters(const Counters& counters, const CounterReadings& readings) {
  return {
#define CACHESHIM_COUNTER(name, section, unit, help) counters.name.load(std::memory_order_relaxed),
#define CACHESHIM_READING(name, section, unit, help) readings.name,
#include "common/counters.def"
#undef CACHESHIM_COUNTER
#undef CACHESHIM_READING
  };
}

// Whether each row has a help text, and the rows are sorted by section.
constexpr bool are_complete(const auto& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].help.empty()) return false;
    if (i > 0 && rows[i].section < rows[i - 1].section) return false;
  }
  return true;
}
static_assert(are_complete(kCounterRows));

}  // namespace cacheshim
