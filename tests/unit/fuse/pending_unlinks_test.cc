// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fuse/services/freshness/pending_unlinks.h"

namespace cacheshim {
namespace {

constexpr PendingUnlinks::NodeId kFile = 10;
constexpr PendingUnlinks::NodeId kOther = 11;
constexpr PendingUnlinks::NodeId kDirectory = 20;
constexpr uid_t kOwner = 1001;

Notification in_directory(const std::string& name) {
  return {kDirectory, name, Notification::Kind::kName, kOwner};
}

// Simulates the kernel, which keeps directories locked. release() ends the waiting invalidations as if the kernel had
// released the lock; block() ends them as if the kernel had kept the lock for too long.
class PendingUnlinksTest : public ::testing::Test {
 protected:
  void release() { answer(true); }
  void block() { answer(false); }

  void answer(bool is_released) {
    for (const auto& done : std::exchange(waiting_, {})) done(is_released);
  }

  std::vector<std::function<void(bool)>> waiting_;  // the invalidations that wait for a directory
  PendingUnlinks unlinks_{[this](const Notification& name, std::function<void(bool)> done) {
    EXPECT_EQ(name.directory, kDirectory);
    EXPECT_EQ(name.owner, kOwner);
    waiting_.push_back(std::move(done));
  }};
};

// A client can keep the directory locked while it continues to unlink files.
TEST_F(PendingUnlinksTest, RecordsHaveALimitWhileTheKernelKeepsTheDirectoryLocked) {
  for (std::size_t i = 0; i < 2 * PendingUnlinks::kMostWhileDelayed; ++i) {
    unlinks_.begin(1000 + i, in_directory("name"));
  }
  EXPECT_TRUE(unlinks_.has(1000));
  EXPECT_FALSE(unlinks_.has(1000 + 2 * PendingUnlinks::kMostWhileDelayed - 1));
  unlinks_.begin(1000, in_directory("another"));
  unlinks_.end(1001);
  unlinks_.begin(kFile, in_directory("name"));
  EXPECT_TRUE(unlinks_.has(kFile));
}

TEST_F(PendingUnlinksTest, AFileIsPendingUntilTheKernelReleasesTheDirectory) {
  EXPECT_FALSE(unlinks_.has(kFile));
  unlinks_.begin(kFile, in_directory("name"));
  EXPECT_FALSE(unlinks_.has(kOther));
  EXPECT_TRUE(unlinks_.has(kFile));
  EXPECT_TRUE(unlinks_.has(kFile));
  EXPECT_EQ(waiting_.size(), 1U);
  release();
  EXPECT_FALSE(unlinks_.has(kFile));
}

TEST_F(PendingUnlinksTest, AFurtherRemovalStaysPendingWhenTheFirstIsOver) {
  unlinks_.begin(kFile, in_directory("name"));
  EXPECT_TRUE(unlinks_.has(kFile));
  unlinks_.begin(kFile, in_directory("name"));
  release();
  EXPECT_TRUE(unlinks_.has(kFile));
}

TEST_F(PendingUnlinksTest, AnotherRequestWithTheLockOfTheFileEndsIt) {
  unlinks_.begin(kFile, in_directory("name"));
  unlinks_.begin(kOther, in_directory("other"));
  unlinks_.end(kFile);
  EXPECT_FALSE(unlinks_.has(kFile));
  EXPECT_TRUE(unlinks_.has(kOther));
}

TEST_F(PendingUnlinksTest, NothingIsInvalidatedUntilAFileIsStattedOrThereAreMany) {
  for (PendingUnlinks::NodeId file = 0; file < PendingUnlinks::kMost; ++file) {
    unlinks_.begin(100 + file, in_directory(std::to_string(file)));
  }
  EXPECT_TRUE(waiting_.empty());
  unlinks_.begin(kFile, in_directory("name"));
  EXPECT_EQ(waiting_.size(), PendingUnlinks::kMost + 1);
  release();
  EXPECT_FALSE(unlinks_.has(kFile));
}

TEST_F(PendingUnlinksTest, AFileStaysPendingWhileAProcessHoldsTheDirectory) {
  unlinks_.begin(kFile, in_directory("name"));
  EXPECT_TRUE(unlinks_.has(kFile));
  block();
  EXPECT_TRUE(unlinks_.has(kFile));
  EXPECT_EQ(waiting_.size(), 1U);  // another invalidation of the name waits
  release();
  EXPECT_FALSE(unlinks_.has(kFile));
}

TEST_F(PendingUnlinksTest, ADirectoryThatAProcessHoldsKeepsALimitedNumberOfFilesPending) {
  for (PendingUnlinks::NodeId file = 0; file <= PendingUnlinks::kMost; ++file) {
    unlinks_.begin(100 + file, in_directory(std::to_string(file)));
  }
  block();
  std::size_t pending = 0;
  for (PendingUnlinks::NodeId file = 0; file <= PendingUnlinks::kMost; ++file) {
    if (unlinks_.has(100 + file)) ++pending;
  }
  EXPECT_EQ(pending, PendingUnlinks::kMost);
}

}  // namespace
}  // namespace cacheshim
