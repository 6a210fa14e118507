// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "common/route_table.h"
#include "store/profiles/profile.h"

namespace cacheshim {
namespace {

std::string sample() {
  Profile triton;
  triton.name = "triton";
  triton.variable = "TRITON_CACHE_DIR";
  triton.unless = {"TRITON_HOME", "OTHER"};
  triton.default_paths = {"~/.triton/cache", "/var/triton"};
  triton.evidence = Evidence::kRun;
  Profile bare;
  bare.name = "bare";
  bare.variable = "BARE_CACHE_DIR";
  bare.evidence = Evidence::kRun;
  return compile_routes({bare, triton});
}

template <class T>
void set(std::string& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

bool parses(const std::string& bytes) { return static_cast<bool>(RouteTable::parse(bytes)); }

TEST(RouteTable, ReadsTheRoutesOfTheProfiles) {
  const std::string bytes = sample();
  const auto table = RouteTable::parse(bytes);
  ASSERT_TRUE(table);
  ASSERT_EQ(table->size(), 3U);
  EXPECT_EQ(table->name(0), "bare");
  EXPECT_EQ(table->variable(0), "BARE_CACHE_DIR");
  EXPECT_EQ(table->default_path(0), "");
  EXPECT_EQ(table->name(1), "triton");
  EXPECT_EQ(table->variable(1), "TRITON_CACHE_DIR");
  EXPECT_EQ(table->unless(1), "TRITON_HOME:OTHER");
  EXPECT_EQ(table->default_path(1), "~/.triton/cache");
  EXPECT_EQ(table->default_path(2), "/var/triton");
}

TEST(RouteTable, LeavesVariablesAloneThatAreNotToBeSet) {
  Profile guess;
  guess.name = "guess";
  guess.variable = "GUESS_DIR";
  guess.default_paths = {"~/guess"};
  Profile off = guess;
  off.name = "off";
  off.evidence = Evidence::kRun;
  off.set_variable = false;
  Profile nowhere = off;  // a profile without any path to route
  nowhere.default_paths.clear();
  const std::string bytes = compile_routes({guess, off, nowhere});
  const auto table = RouteTable::parse(bytes);
  ASSERT_TRUE(table);
  ASSERT_EQ(table->size(), 2U);
  for (std::uint32_t route = 0; route < 2; ++route) {
    EXPECT_EQ(table->variable(route), "");
    // If the user sets this variable, it names the cache's directory, and the default path has no
    // route.
    EXPECT_EQ(table->unless(route), "GUESS_DIR");
    EXPECT_EQ(table->default_path(route), "~/guess");
  }
}

TEST(RouteTable, OfNoProfilesIsEmpty) {
  const std::string bytes = compile_routes({});
  const auto table = RouteTable::parse(bytes);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->size(), 0U);
}

TEST(RouteTable, MayBeFollowedByPadding) { EXPECT_TRUE(parses(sample() + "padding")); }

TEST(RouteTable, RefusesEveryTruncation) {
  const std::string whole = sample();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(RouteTable::parse(whole.substr(0, size)).failed_with(EINVAL)) << size;
  }
}

TEST(RouteTable, RefusesAnotherMagicOrVersion) {
  std::string bytes = sample();
  set(bytes, offsetof(RouteTableHeader, magic), kRouteTableMagic + 1);
  EXPECT_FALSE(parses(bytes));
  bytes = sample();
  set(bytes, offsetof(RouteTableHeader, version), kRouteTableVersion + 1);
  EXPECT_FALSE(parses(bytes));
}

TEST(RouteTable, RefusesSizesAndOffsetsThatLeadOutside) {
  for (const std::uint32_t size : {0U, 8U, 0x7fffffffU, 0xffffffffU}) {
    std::string bytes = sample();
    set(bytes, offsetof(RouteTableHeader, size_bytes), size);
    EXPECT_FALSE(parses(bytes)) << size;
  }
  for (const std::uint32_t count : {4U, 0x10000000U, 0xffffffffU}) {
    std::string bytes = sample();
    set(bytes, offsetof(RouteTableHeader, route_count), count);
    EXPECT_FALSE(parses(bytes)) << count;
  }
  const auto size = static_cast<std::uint32_t>(sample().size());
  for (const std::uint32_t offset : {0U, 20U, size, 0xffffffffU}) {
    std::string bytes = sample();
    set(bytes, sizeof(RouteTableHeader) + offsetof(RouteRecord, default_path), offset);
    EXPECT_FALSE(parses(bytes)) << offset;
  }
}

TEST(RouteTable, RefusesStringsWithoutAnEnd) {
  std::string bytes = sample();
  bytes.back() = 'x';
  EXPECT_FALSE(parses(bytes));
}

}  // namespace
}  // namespace cacheshim
