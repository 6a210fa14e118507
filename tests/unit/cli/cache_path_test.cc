// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include "cli/cache_path.h"
#include "cli/configuration/config.h"
#include "cli/configuration/units.h"

namespace cacheshim::cli {
namespace {

std::string found(const std::string& text) {
  (void)::setenv("HOME", "/home/me", 1);
  Profile profile;
  profile.name = "triton";
  profile.default_paths = {"~/.triton/cache", "/opt/triton"};
  const auto path = find_cache_path(text, "/ci-cache", "/data/store", {profile});
  return path ? path->path + "|" + path->job : "nothing";
}

TEST(CachePath, IsFoundByEverySpelling) {
  EXPECT_EQ(found("/ci-cache/triton/K/x"), "triton/K/x|");
  EXPECT_EQ(found("/ci-cache//triton/./K/x/"), "triton/K/x|");
  EXPECT_EQ(found("/ci-cache/.jobs/j1/triton/K"), "triton/K|j1");
  EXPECT_EQ(found("/ci-cache/.jobs/j1@7/triton"), "triton|j1");
  EXPECT_EQ(found("/data/store/pip/x"), "pip/x|");
  EXPECT_EQ(found("/home/me/.triton/cache/K"), "triton/K|");
  EXPECT_EQ(found("/opt/triton/K"), "triton/K|");
  EXPECT_EQ(found("triton/K"), "triton/K|");
  EXPECT_EQ(found("/ci-cachetriton/K"), "nothing");
  EXPECT_EQ(found("/home/other/.triton/cache/K"), "nothing");
  EXPECT_EQ(found(""), "nothing");
}

TEST(Size, HasUnitsOfPowersOf1024) {
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size("3K"), 3072U);
  EXPECT_EQ(parse_size("20G"), std::uint64_t{20} << 30);
  for (const char* text : {"", "G", "-1", "5X", "5GB", "5 G", "99999999P", "1.5G"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(GcConfig, IsReadWhole) {
  const EvictionLimits none = parse_config("", "c.toml").gc;
  EXPECT_FALSE(none.are_set());
  EXPECT_EQ(none.min_age, std::chrono::hours(48));
  const Config config = parse_config(
      "[gc]\nmax_size = \"2G\"\nmax_files = 7\nmax_age = \"30d\"\nmin_free = \"5%\"\nmin_age = 0\n"
      "interval = \"1m\"\n",
      "c.toml");
  EXPECT_TRUE(config.gc.are_set());
  EXPECT_EQ(config.gc.max_size, std::uint64_t{2} << 30);
  EXPECT_EQ(config.gc.max_files, 7U);
  EXPECT_EQ(config.gc.max_age, std::chrono::hours(30 * 24));
  EXPECT_EQ(config.gc.min_free_percent, 5);
  EXPECT_EQ(config.gc.min_free, std::nullopt);
  EXPECT_EQ(config.gc.min_age, std::chrono::seconds(0));
  EXPECT_EQ(config.gc_interval, std::chrono::minutes(1));
  EXPECT_EQ(parse_config("[gc]\nmin_free = 4096\n", "c.toml").gc.min_free, 4096U);
}

}  // namespace
}  // namespace cacheshim::cli
