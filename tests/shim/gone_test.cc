// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/shim/stage.h"

// Tests a mount that disappears while a process runs.
namespace cacheshim {
namespace {

class ShimGone : public testing::Test {
 protected:
  Ended run(const char* how) {
    return stage_.run({std::getenv("CACHESHIM_TEST_GONE"), stage_.mount(), stage_.path("mountinfo"),
                       stage_.path("home"), how});
  }
  void expect_the_cache_in_its_default_directory() {
    for (const char* name : {"/m", "/v", "/r", "/c", "/p"}) {
      EXPECT_TRUE(exists(stage_.default_directory() + name)) << name;
    }
    EXPECT_FALSE(exists(stage_.default_directory() + "/before"));
  }
  Stage stage_;
};

TEST_F(ShimGone, AnUnmountedMountIsReplacedByTheDefaultDirectoryAtTheNextCreation) {
  const Ended ended = run("unmounted");
  EXPECT_EQ(
      ended.out,
      "before ok\nlook 2\nopenat2 ok\nmissing parent 2\ndefault path ok\nmount path ok\nview path ok\n"
      "rename ok\nmkstemp ok\nnamed " +
          stage_.mount() +
          "/triton/t\nunknown name ok\n"
          "child ok\nprogram ok\n");
  EXPECT_EQ(ended.err, "cacheshim: the mount at " + stage_.mount() +
                           " is gone (it is not mounted any more); using " +
                           stage_.default_directory() + " instead\n");
  expect_the_cache_in_its_default_directory();
  EXPECT_TRUE(exists(stage_.default_directory() + "/n"));
}

TEST_F(ShimGone, ADeadDaemonsMountIsReplacedAtOnce) {
  stage_.environment["LD_PRELOAD"] += std::string(":") + std::getenv("CACHESHIM_TEST_DEAD_MOUNT");
  const Ended ended = run("dead");
  EXPECT_EQ(ended.out,
            "before ok\nlook 2\nmissing parent 2\ndefault path ok\nmount path ok\nview path ok\n"
            "rename ok\nmkstemp ok\nnamed " +
                stage_.mount() +
                "/triton/t\nunknown name 107\n"
                "child ok\nprogram ok\n");
  EXPECT_EQ(ended.err, "cacheshim: the mount at " + stage_.mount() +
                           " is gone (Transport endpoint is not connected); using " +
                           stage_.default_directory() + " instead\n");
  expect_the_cache_in_its_default_directory();
}

// The program does what `mkdir -p` does: it changes into each directory of a path and creates the next
// one by its relative name.
TEST_F(ShimGone, ADeadMountIsReplacedAtTheFirstRelativePath) {
  stage_.environment["LD_PRELOAD"] += std::string(":") + std::getenv("CACHESHIM_TEST_DEAD_MOUNT");
  const Ended ended = run("dead for relative paths");
  EXPECT_EQ(ended.out, "before ok\nrelative ok\nand again ok\n");
  EXPECT_TRUE(exists(stage_.default_directory() + "/K/f"));
}

// The kernel itself retries the lookup only once. A file that is replaced repeatedly needs more
// retries.
TEST_F(ShimGone, AStaleFileIsLookedUpAgain) {
  std::filesystem::create_directories(stage_.view() + "/K");
  write_text(stage_.view() + "/K/f", "content");
  stage_.environment["LD_PRELOAD"] += std::string(":") + std::getenv("CACHESHIM_TEST_DEAD_MOUNT");
  stage_.environment["TEST_STALE_MOUNT"] = stage_.mount();
  stage_.environment["TEST_STALE"] = "3";
  const Ended ended = stage_.run_shell("exec cat ~/.triton/cache/K/f");
  EXPECT_EQ(ended.out, "content");
  EXPECT_EQ(ended.err, "");
  stage_.environment["TEST_STALE"] = "1000";
  const Ended endless = stage_.run_shell("exec cat ~/.triton/cache/K/f");
  EXPECT_NE(endless.err.find("Stale file handle"), std::string::npos) << endless.err;
  EXPECT_EQ(endless.err.find("cacheshim: "), std::string::npos) << endless.err;
}

TEST_F(ShimGone, StrictLetsTheErrorStand) {
  stage_.environment["LD_PRELOAD"] += std::string(":") + std::getenv("CACHESHIM_TEST_DEAD_MOUNT");
  stage_.environment["CACHESHIM_STRICT"] = "1";
  const Ended ended = run("dead");
  EXPECT_EQ(ended.out,
            "before ok\nlook 107\nmissing parent 107\ndefault path 107\nmount path 107\n"
            "view path 107\nrename 107\nmkstemp 107\nnamed " +
                stage_.mount() + "/triton/t\nunknown name 107\nchild 107\n");
  EXPECT_EQ(ended.err, "");
  EXPECT_FALSE(exists(stage_.path("home/.triton")));
}

TEST_F(ShimGone, AnOrdinaryFailureIsNoLostMount) {
  const Ended ended = run("there");
  EXPECT_EQ(ended.out,
            "before ok\nlook ok\nmissing parent 2\ndefault path ok\nmount path ok\nview path ok\n"
            "rename ok\nmkstemp ok\nnamed " +
                stage_.mount() +
                "/triton/t\nunknown name ok\n"
                "child ok\nprogram ok\n");
  EXPECT_EQ(ended.err, "");
  EXPECT_FALSE(exists(stage_.path("home/.triton")));
}

TEST_F(ShimGone, ChildrenOfAProcessThatReportedStaySilent) {
  stage_.environment["CACHESHIM_WARNED"] = "1";
  EXPECT_EQ(run("unmounted").err, "");
  expect_the_cache_in_its_default_directory();
}

}  // namespace
}  // namespace cacheshim
