// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/path_match.h"

#include <gtest/gtest.h>

#include <string>

namespace cacheshim {
namespace {

constexpr std::string_view kPrefix = "/home/u/.triton/cache";

std::string rest_of(std::string_view path) {
  const PathMatch match = match_prefix(path, kPrefix);
  return match.matched ? std::string(path.substr(match.rest)) : "no match";
}

TEST(PathMatch, FindsThePrefixAtAComponentsEnd) {
  EXPECT_EQ(rest_of("/home/u/.triton/cache"), "");
  EXPECT_EQ(rest_of("/home/u/.triton/cache/"), "/");
  EXPECT_EQ(rest_of("/home/u/.triton/cache/KEY/x"), "/KEY/x");
  EXPECT_EQ(rest_of("/home/u/.triton/cache2/x"), "no match");
  EXPECT_EQ(rest_of("/home/u/.triton"), "no match");
  EXPECT_EQ(rest_of("/home/u"), "no match");
  EXPECT_EQ(rest_of(""), "no match");
  EXPECT_EQ(rest_of("/"), "no match");
}

TEST(PathMatch, SkipsDoubledSlashesAndDots) {
  EXPECT_EQ(rest_of("//home/./u///.triton/cache//x"), "//x");
  EXPECT_EQ(rest_of("/./home/u/.triton/./cache"), "");
  EXPECT_EQ(rest_of("/home/u/.triton/.cache"), "no match");
}

TEST(PathMatch, LeavesWhatFollowsToTheKernel) {
  EXPECT_EQ(rest_of("/home/u/.triton/cache/a/../b"), "/a/../b");
  EXPECT_EQ(rest_of("/home/u/.triton/cache/a/.."), "/a/..");
  EXPECT_EQ(rest_of("/home/u/.triton/cache/..x"), "/..x");
}

TEST(PathMatch, DoesNotMatchAPathThatLeavesAgain) {
  EXPECT_EQ(rest_of("/home/u/.triton/cache/../x"), "no match");
  EXPECT_EQ(rest_of("/home/u/.triton/cache/a/../../cache/x"), "no match");
}

TEST(PathMatch, ReportsWhereAPathLeaves) {
  const std::string_view path = "/home/u/.triton/cache/./../x";
  const PathMatch match = match_prefix(path, kPrefix);
  EXPECT_EQ(match.inside, match.rest);
  EXPECT_EQ(path.substr(match.left), "/x");
  const std::string_view deep = "/home/u/.triton/cache/a/b/../..//../../x";
  const PathMatch deep_match = match_prefix(deep, kPrefix);
  EXPECT_EQ(deep.substr(0, deep_match.inside), "/home/u/.triton/cache/a/b/../..");
  EXPECT_EQ(deep.substr(deep_match.left), "/../x");
}

TEST(PathMatch, ReportsTheDirectoriesThatDotDotDependsOn) {
  const std::string_view path = "/home/u/project/../.triton/cache/x";
  const PathMatch match = match_prefix(path, kPrefix);
  ASSERT_TRUE(match.matched);
  EXPECT_EQ(path.substr(0, match.head), "/home/u/project/..");
  EXPECT_EQ(kPrefix.substr(0, match.same_as), "/home/u");
  EXPECT_EQ(path.substr(match.rest), "/x");
}

TEST(PathMatch, FollowsDotDotFromTheRootAndFromTheMiddle) {
  const PathMatch root = match_prefix("/usr/../home/u/.triton/cache", kPrefix);
  EXPECT_TRUE(root.matched);
  EXPECT_EQ(root.same_as, 0u);
  EXPECT_EQ(root.head, std::string_view("/usr/..").size());
  EXPECT_TRUE(match_prefix("/home/x/y/../../u/.triton/cache", kPrefix).matched);
  EXPECT_TRUE(match_prefix("/../home/u/.triton/cache", kPrefix).matched);
  EXPECT_FALSE(match_prefix("/home/u/.triton/../cache", kPrefix).matched);
}

TEST(PathMatch, RecognizesPlainPaths) {
  EXPECT_TRUE(is_plain_path("/home/u/.triton/..x/y."));
  EXPECT_TRUE(is_plain_path("/"));
  for (const char* path : {"/a//b", "/a/./b", "/a/.", "/a/..", "/../a", "//a"}) {
    EXPECT_FALSE(is_plain_path(path)) << path;
  }
}

TEST(PathMatch, NormalizesOnlyAbsolutePathsWithoutDotDot) {
  char out[32];
  EXPECT_EQ(std::string_view(out, normalise_path("//a/./b///", out, sizeof out)), "/a/b");
  EXPECT_STREQ(out, "/a/b");
  for (const char* path : {"", "a/b", "/", "/a/../b", "/a/.."}) {
    EXPECT_EQ(normalise_path(path, out, sizeof out), 0u) << path;
  }
  EXPECT_EQ(normalise_path("/" + std::string(31, 'x'), out, sizeof out), 0u);
  EXPECT_EQ(normalise_path("/" + std::string(30, 'x'), out, sizeof out), 31u);
}

}  // namespace
}  // namespace cacheshim
