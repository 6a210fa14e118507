// SPDX-License-Identifier: Apache-2.0
#include "common/counters.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string_view>

namespace cacheshim {
namespace {

std::map<std::string_view, std::uint64_t> by_name(const CounterValues& values) {
  std::map<std::string_view, std::uint64_t> found;
  for (std::size_t i = 0; i < values.size(); ++i) found.emplace(kCounterRows[i].name, values[i]);
  return found;
}

TEST(Counters, DocumentedNamesAreInTheTable) {
  const auto found = by_name({});
  EXPECT_EQ(found.size(), kCounterRows.size()) << "a name occurs twice";
  for (const char* name :
       {"lookups", "hits_direct", "opens_base", "opens_layer", "misses", "flight_leases",
        "flight_waits", "flight_hits", "flight_timeouts", "entries_published", "files_published",
        "bytes_published", "publish_conflicts", "publish_refused", "copy_ups", "lock_waits",
        "batons_reaped", "jobs_active", "worker_restarts"}) {
    EXPECT_TRUE(found.contains(name)) << name;
  }
}

TEST(Counters, EachValueHasTheNameOfItsMember) {
  Counters counters;
  counters.misses = 1;
  counters.verify_failures = 2;
  counters.bytes_published = 3;
  auto found = by_name(read_counters(counters, {.hits_direct = 4, .jobs_active = 5}));
  EXPECT_EQ(found["misses"], 1U);
  EXPECT_EQ(found["verify_failures"], 2U);
  EXPECT_EQ(found["bytes_published"], 3U);
  EXPECT_EQ(found["hits_direct"], 4U);
  EXPECT_EQ(found["jobs_active"], 5U);
  EXPECT_EQ(found["lookups"], 0U);
}

TEST(Counters, OnlyBytesAreSizesAndOnlyJobsActiveIsAGauge) {
  for (const CounterRow& row : kCounterRows) {
    EXPECT_EQ(row.unit == CounterUnit::kBytes, row.name.find("bytes") != row.name.npos)
        << row.name;
    EXPECT_EQ(row.unit == CounterUnit::kNow, row.name == "jobs_active") << row.name;
  }
}

}  // namespace
}  // namespace cacheshim
