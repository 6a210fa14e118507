// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/server_misses.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "store/overlay/lower_stack.h"
#include "store/sys/file_system.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

// A base on a simulated file server. The names in `published_` exist on the server, but this machine finds them only
// after it has renewed the attributes of their directory.
class ServerMissesTest : public ::testing::Test {
 protected:
  ServerMissesTest() {
    EXPECT_EQ(::mkdir((scratch_ / "base").c_str(), 0755), 0);
    base_ = *sys::open_path(scratch_ / "base", O_RDONLY | O_DIRECTORY);
  }

  std::unique_ptr<ServerMisses> make() {
    return std::make_unique<ServerMisses>(
        base_.get(), [this](int directory) { sync(directory); }, [this] { return now_; });
  }
  void sync(int directory) {
    ++syncs_;
    const auto st = sys::stat_fd(directory);
    for (const std::string& path : published_) {
      const std::string parent = scratch_ / ("base/" + std::string(parent_path(path)));
      struct stat there {};
      if (::stat(parent.c_str(), &there) == 0 && there.st_ino == st->st_ino) {
        scratch_.write("base/" + path, "published");
      }
    }
  }
  void wait(int milliseconds) { now_ += std::chrono::milliseconds(milliseconds); }

  Scratch scratch_;
  UniqueFd base_;
  std::vector<std::string> published_;  // by another machine
  int syncs_ = 0;
  ServerMisses::Clock::time_point now_ = ServerMisses::Clock::now();
};

TEST_F(ServerMissesTest, FindsWhatAnotherMachineHasPublished) {
  scratch_.write("base/fam/old", "");
  const LowerStack lowers({base_.get()}, make());
  published_ = {"fam/new"};
  EXPECT_TRUE(lowers.find("fam/new"));
  EXPECT_EQ(syncs_, 1);
}

TEST_F(ServerMissesTest, AsksAtMostOnceASecondForEachDirectory) {
  scratch_.write("base/fam/old", "");
  scratch_.write("base/other/old", "");
  const LowerStack lowers({base_.get()}, make());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(lowers.find("fam/a").error(), Errno(ENOENT));
  EXPECT_EQ(syncs_, 1);
  EXPECT_EQ(lowers.find("other/a").error(), Errno(ENOENT));
  EXPECT_EQ(syncs_, 2);
  published_ = {"fam/a"};
  wait(999);
  EXPECT_EQ(lowers.find("fam/a").error(), Errno(ENOENT));
  wait(1);
  EXPECT_TRUE(lowers.find("fam/a"));
  EXPECT_EQ(syncs_, 3);
}

TEST_F(ServerMissesTest, AsksImmediatelyForAnExpectedName) {
  scratch_.write("base/fam/old", "");
  const LowerStack lowers({base_.get()}, make());
  EXPECT_EQ(lowers.find("fam/a").error(), Errno(ENOENT));
  published_ = {"fam/a"};
  lowers.server_misses()->expect("fam/a");
  EXPECT_TRUE(lowers.open("fam/a", O_RDONLY));
}

TEST_F(ServerMissesTest, AsksForTheNearestDirectoryThatExists) {
  const LowerStack lowers({base_.get()}, make());
  published_ = {"fam"};
  EXPECT_EQ(lowers.find("fam/key/file").error(), Errno(ENOTDIR));
  EXPECT_EQ(syncs_, 1);
}

TEST_F(ServerMissesTest, AsksForNothingThatExists) {
  scratch_.write("base/fam/a", "");
  const LowerStack lowers({base_.get()}, make());
  EXPECT_TRUE(lowers.find("fam/a"));
  EXPECT_TRUE(lowers.open("fam/a", O_RDONLY));
  EXPECT_EQ(lowers.find("fam/a/b").error(), Errno(ENOTDIR));
  EXPECT_EQ(syncs_, 0);
}

TEST_F(ServerMissesTest, AsksBeforeAListing) {
  scratch_.write("base/fam/a", "");
  const LowerStack lowers({base_.get()}, make());
  published_ = {"fam/b"};
  EXPECT_EQ(lowers.list("fam")->size(), 2U);
  EXPECT_EQ(lowers.list("fam")->size(), 2U);
  EXPECT_EQ(syncs_, 1);
}

TEST_F(ServerMissesTest, ALocalBaseNeedsNoServerMisses) {
  if (!is_local_file_system(base_.get())) GTEST_SKIP() << "the temporary directory is not on a local file system";
  EXPECT_EQ(ServerMisses::make(base_.get()), nullptr);
}

}  // namespace
}  // namespace cacheshim
