// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/router.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace cacheshim {
namespace {

using Kind = RoutedPath::Kind;

bool always_same(const char*, const char*) { return true; }
bool never_same(const char*, const char*) { return false; }

class RouterTest : public testing::Test {
 protected:
  void start(std::string_view job) {
    router_ = std::make_unique<Router>();
    ASSERT_TRUE(router_->routes().set_mount("/ci-cache", job));
    ASSERT_TRUE(router_->routes().add("triton", "/home/u/.triton/cache", true));
    ASSERT_TRUE(router_->routes().add("pip", "/home/u/.cache/pip", false));
    router_->open();
  }
  // Calls the router as the hooks do: only if may_match accepts the path.
  RoutedPath ask(const std::string& path, Router::SameDirectory same = always_same) {
    asked_ = path;
    if (!router_->may_match(asked_.c_str())) return {Kind::kForeign, asked_.c_str()};
    return router_->route(asked_.c_str(), buffer_, same);
  }
  std::string routed(const std::string& path, Router::SameDirectory same = always_same) {
    return ask(path, same).path;
  }
  std::string fallen_back(const std::string& path) {
    asked_ = path;
    return router_->fall_back(asked_.c_str(), buffer_, always_same).path;
  }

  std::unique_ptr<Router> router_;
  PathBuffer buffer_;
  std::string asked_;
};

TEST_F(RouterTest, MatchesNothingBeforeItIsOpen) {
  router_ = std::make_unique<Router>();
  ASSERT_TRUE(router_->routes().set_mount("/ci-cache", "j7"));
  EXPECT_FALSE(router_->may_match("/ci-cache/triton"));
  EXPECT_FALSE(router_->may_match("/usr/../ci-cache"));
  router_->open();
  EXPECT_TRUE(router_->may_match("/ci-cache/triton"));
}

TEST_F(RouterTest, MayMatchAcceptsEveryPathWithDotDot) {
  start("j7");
  const std::string plain = "/usr/lib/python3.11/x.so";
  EXPECT_FALSE(router_->may_match(plain.c_str()));
  for (std::size_t at = plain.find('/', 1); at != std::string::npos; at = plain.find('/', at + 1)) {
    EXPECT_TRUE(router_->may_match((plain.substr(0, at) + "/.." + plain.substr(at)).c_str()));
  }
  EXPECT_TRUE(router_->may_match("/usr/.."));
}

TEST_F(RouterTest, SendsDefaultAndMountPathsToTheJobsView) {
  start("j7");
  EXPECT_EQ(routed("/home/u/.triton/cache"), "/ci-cache/.jobs/j7/triton");
  EXPECT_EQ(routed("/home/u/.triton/cache/K/x"), "/ci-cache/.jobs/j7/triton/K/x");
  EXPECT_EQ(routed("/ci-cache/triton/K"), "/ci-cache/.jobs/j7/triton/K");
  EXPECT_EQ(routed("/ci-cache/other"), "/ci-cache/.jobs/j7/other");
}

TEST_F(RouterTest, LeavesMountPathsToTheDaemonWithoutAJob) {
  start("");
  EXPECT_EQ(routed("/home/u/.triton/cache/K"), "/ci-cache/triton/K");
  EXPECT_EQ(ask("/ci-cache/triton/K").kind, Kind::kUnchanged);
  EXPECT_EQ(routed("/ci-cache/triton/K"), "/ci-cache/triton/K");
}

TEST_F(RouterTest, NeverMovesTheMountsRootNorOurOwnNames) {
  start("j7");
  for (const char* path :
       {"/ci-cache", "/ci-cache/", "/ci-cache//.", "/ci-cache/.jobs",
        "/ci-cache/.jobs/other/triton", "/ci-cache/.cacheshim/stats", "/ci-cache//./.jobs/x"}) {
    EXPECT_EQ(routed(path), path);
    EXPECT_EQ(ask(path).kind, Kind::kUnchanged) << path;
  }
  EXPECT_EQ(routed("/ci-cache/.jobsx"), "/ci-cache/.jobs/j7/.jobsx");
}

TEST_F(RouterTest, LeavesForeignPathsAlone) {
  start("j7");
  for (const char* path :
       {"/", "/etc/passwd", "/home/u/.triton", "/home/u/.triton/cache2", "/ci-cache2/x",
        "/home/u/.cache/pip/x", "relative", "", "/ci-cach", "/ci-cache/../etc"}) {
    EXPECT_EQ(ask(path).kind, Kind::kForeign) << path;
    EXPECT_EQ(routed(path), path);
  }
}

TEST_F(RouterTest, MayMatchRejectsByTheFirstByte) {
  start("j7");
  EXPECT_FALSE(router_->may_match("/usr/lib/x.so"));
  EXPECT_FALSE(router_->may_match("lib/x"));
  EXPECT_TRUE(router_->may_match("/usr/../ci-cache"));
  EXPECT_TRUE(router_->may_match("//ci-cache"));
}

TEST_F(RouterTest, ConfirmsPathsWithDotDotInFront) {
  start("j7");
  EXPECT_EQ(routed("/usr/../home/u/.triton/cache/x"), "/ci-cache/.jobs/j7/triton/x");
  EXPECT_EQ(routed("/usr/../home/u/.triton/cache/x", never_same), "/usr/../home/u/.triton/cache/x");
  EXPECT_EQ(routed("/usr/../ci-cache/x", never_same), "/usr/../ci-cache/x");
}

TEST_F(RouterTest, FollowsDotDotOutOfADefaultPath) {
  start("j7");
  EXPECT_EQ(routed("/home/u/.triton/cache/../y"), "/home/u/.triton/y");
  EXPECT_EQ(routed("/home/u/.triton/cache/.."), "/home/u/.triton");
  EXPECT_EQ(routed("/home/u/.triton/cache/../cache/y"), "/ci-cache/.jobs/j7/triton/y");
}

TEST_F(RouterTest, FollowsDotDotOutOfADirectoryInARoute) {
  start("j7");
  EXPECT_EQ(routed("/home/u/.triton/cache/a/b/../../../y"), "/home/u/.triton/y");
  EXPECT_EQ(routed("/home/u/.triton/cache/a/../.."), "/home/u/.triton");
  EXPECT_EQ(routed("/ci-cache/triton/a/../../pip/y"), "/ci-cache/.jobs/j7/pip/y");
  EXPECT_EQ(routed("/ci-cache/triton/a/../../../etc/y"), "/ci-cache/../etc/y");
  EXPECT_EQ(routed("/ci-cache/triton/../../home/u/.triton/cache/y"), "/ci-cache/.jobs/j7/triton/y");
  start("");
  EXPECT_EQ(routed("/ci-cache/triton/../pip/y"), "/ci-cache/pip/y");
  EXPECT_EQ(routed("/home/u/.triton/cache/a/../../y"), "/home/u/.triton/y");
}

// The directories above a default path may be missing. The kernel could then not resolve "..", so the library does.
TEST_F(RouterTest, FollowsDotDotAboveMissingDirectories) {
  start("j7");
  EXPECT_EQ(routed("/home/u/.triton/cache/../../y", never_same), "/home/u/y");
  EXPECT_EQ(routed("/home/u/.triton/cache/../../../../../y", never_same), "/y");
  EXPECT_EQ(routed("/home/u/.triton/cache/../../y"), "/home/u/.triton/../y");
}

// The component before ".." may be a symlink to another directory, so the library must leave the path to the kernel.
TEST_F(RouterTest, LeavesDotDotAfterASymlinkToTheKernel) {
  start("j7");
  EXPECT_EQ(routed("/home/u/.triton/cache/link/../../y", never_same),
            "/ci-cache/.jobs/j7/triton/link/../../y");
  EXPECT_EQ(routed("/ci-cache/triton/link/../../y", never_same),
            "/ci-cache/.jobs/j7/triton/link/../../y");
}

TEST_F(RouterTest, TranslatesNamesOfTheOwnViewBack) {
  start("j7");
  const auto path_spelling = [&](const std::string& path, std::size_t route,
                                 Router::SameDirectory same = never_same) {
    const Router::Place place = router_->find_place(path.c_str(), same);
    return place.name.empty() ? path
                              : std::string(router_->restore(path.c_str(), place, route, buffer_));
  };
  EXPECT_EQ(path_spelling("/ci-cache/.jobs/j7/triton/K/x", 0), "/home/u/.triton/cache/K/x");
  EXPECT_EQ(path_spelling("/ci-cache/.jobs/j7/triton", 0), "/home/u/.triton/cache");
  EXPECT_EQ(path_spelling("/ci-cache/.jobs/j7/triton/K/x", kNoRoute), "/ci-cache/triton/K/x");
  EXPECT_EQ(path_spelling("/ci-cache/.jobs/j7/pip/x", 0), "/ci-cache/pip/x");
  EXPECT_EQ(path_spelling("/ci-cache/.jobs/j7@1000/pip/x", 0, always_same), "/ci-cache/pip/x");
  for (const char* path :
       {"/ci-cache/.jobs/j7@1000/pip/x", "/ci-cache/.jobs/j8/triton", "/ci-cache/.jobs/j7",
        "/ci-cache", "/ci-cache/.cacheshim/stats", "/home/u/x", "(unreachable)/x"}) {
    EXPECT_EQ(path_spelling(path, 0), path);
  }
}

TEST_F(RouterTest, ManyDotDotsUseABoundedStack) {
  start("j7");
  std::string path = "/home/u/.triton/cache";
  for (int i = 0; i < 400; ++i) path += "/../cache";
  EXPECT_EQ(ask(path).kind, Kind::kForeign);
}

TEST_F(RouterTest, LeavesAPathAloneWhoseTranslationIsTooLong) {
  start("j7");
  const std::size_t room = PATH_MAX - 1 - std::string_view("/ci-cache/.jobs/j7/").size();
  EXPECT_EQ(ask("/ci-cache/" + std::string(room, 'x')).kind, Kind::kRewritten);
  EXPECT_EQ(ask("/ci-cache/" + std::string(room + 1, 'x')).kind, Kind::kUnchanged);
  EXPECT_TRUE(routed("/ci-cache/" + std::string(room + 1, 'x')) == asked_);
}

TEST_F(RouterTest, ReportsWhichPrefixWasReplaced) {
  start("j7");
  const RoutedPath path = ask("//home/u/.triton/cache/K");
  EXPECT_EQ(asked_.substr(0, path.from_length), "//home/u/.triton/cache");
  EXPECT_EQ(std::string_view(path.path, path.to_length), "/ci-cache/.jobs/j7/triton");
}

TEST_F(RouterTest, TheLongestAndThenTheLastRouteApplies) {
  start("j7");
  ASSERT_TRUE(router_->routes().add("inner", "/home/u/.triton/cache/inner", true));
  ASSERT_TRUE(router_->routes().add("own", "/home/u/.triton/cache", true));
  router_->open();
  EXPECT_EQ(routed("/home/u/.triton/cache/inner/x"), "/ci-cache/.jobs/j7/inner/x");
  EXPECT_EQ(routed("/home/u/.triton/cache/x"), "/ci-cache/.jobs/j7/own/x");
}

TEST_F(RouterTest, RefusesRoutesThatCannotWork) {
  start("j7");
  for (const char* path : {"", "relative", "/", "/a/../b", "/ci-cache/x", "/ci-cache"}) {
    EXPECT_FALSE(router_->routes().add("x", path, true)) << path;
  }
  for (std::size_t i = 0; i < 2 * kMaxRoutes; ++i) {
    // Fills the table.
    (void)router_->routes().add("n", "/r" + std::to_string(i), true);
  }
  EXPECT_FALSE(router_->routes().add("x", "/one-more", true));
}

TEST_F(RouterTest, FallsBackToDefaultPaths) {
  start("j7");
  EXPECT_EQ(fallen_back("/ci-cache/triton/K/x"), "/home/u/.triton/cache/K/x");
  EXPECT_EQ(fallen_back("/ci-cache/.jobs/j7/triton/K"), "/home/u/.triton/cache/K");
  EXPECT_EQ(fallen_back("/ci-cache/pip"), "/home/u/.cache/pip");
  EXPECT_EQ(fallen_back("/home/u/.triton/cache/K"), "/home/u/.triton/cache/K");
  for (const char* path : {"/ci-cache", "/ci-cache/.jobs", "/ci-cache/.jobs/j7",
                           "/ci-cache/other/x", "/ci-cache/.cacheshim/stats", "/etc"}) {
    EXPECT_EQ(fallen_back(path), path);
  }
}

TEST_F(RouterTest, MatchesRelativePathsByTheEndOfADefaultPath) {
  start("j7");
  const Router::Relative home = router_->match_relative("./.triton/cache/x", 0);
  ASSERT_NE(home.route, kNoRoute);
  EXPECT_EQ(router_->routes()[home.route].default_path.substr(0, home.directory_length), "/home/u");
  EXPECT_STREQ(router_->complete_relative("./.triton/cache/x", home, buffer_).path,
               "/ci-cache/.jobs/j7/triton/x");
  EXPECT_EQ(router_->match_relative("./.triton/cache/x", 1).route, kNoRoute);
  for (const char* path : {".triton", "x/.triton/cache", "../.triton/cache", "cachex", ""}) {
    EXPECT_EQ(router_->match_relative(path, 0).route, kNoRoute) << path;
  }
  EXPECT_TRUE(router_->may_match("cache/x"));
  EXPECT_NE(router_->match_relative("cache/x", 0).route, kNoRoute);
}

}  // namespace
}  // namespace cacheshim
