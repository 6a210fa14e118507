// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "fuse/services/freshness/pending_unlinks.h"

namespace cacheshim {
namespace {

constexpr PendingUnlinks::NodeId kFile = 10;
constexpr PendingUnlinks::NodeId kOther = 11;
constexpr PendingUnlinks::NodeId kDirectory = 20;

// Simulates the kernel, which keeps directories locked until the test calls release_all().
class PendingUnlinksTest : public ::testing::Test {
 protected:
  ~PendingUnlinksTest() override {
    release_all();
    unlinks_.stop();
  }

  void wait_for(PendingUnlinks::NodeId directory) {
    std::unique_lock lock(mutex_);
    ++waits_[directory];
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_released_; });
  }

  void release_all() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    changed_.notify_all();
  }

  // Waits until the daemon has waited for the directory's lock `count` times.
  void await_waits(PendingUnlinks::NodeId directory, int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waits_[directory] == count; });
  }

  int waits(PendingUnlinks::NodeId directory) {
    const std::lock_guard lock(mutex_);
    return waits_[directory];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<PendingUnlinks::NodeId, int> waits_;
  bool is_released_ = false;
  PendingUnlinks unlinks_{[this](auto directory, const std::string&) { wait_for(directory); }};
};

TEST_F(PendingUnlinksTest, AFileIsPendingUntilTheKernelReleasesTheDirectory) {
  EXPECT_FALSE(unlinks_.has(kFile));
  unlinks_.begin(kFile, kDirectory, "name");
  EXPECT_FALSE(unlinks_.has(kOther));
  EXPECT_TRUE(unlinks_.has(kFile));
  await_waits(kDirectory, 1);
  EXPECT_TRUE(unlinks_.has(kFile));
  release_all();
  unlinks_.stop();
  EXPECT_FALSE(unlinks_.has(kFile));
}

TEST_F(PendingUnlinksTest, AFurtherRemovalStaysPendingWhenTheFirstIsOver) {
  unlinks_.begin(kFile, kDirectory, "name");
  EXPECT_TRUE(unlinks_.has(kFile));
  await_waits(kDirectory, 1);
  unlinks_.begin(kFile, kDirectory, "name");
  release_all();
  unlinks_.stop();
  EXPECT_TRUE(unlinks_.has(kFile));
}

TEST_F(PendingUnlinksTest, AnotherRequestWithTheLockOfTheFileEndsIt) {
  unlinks_.begin(kFile, kDirectory, "name");
  unlinks_.begin(kOther, kDirectory, "other");
  unlinks_.end(kFile);
  EXPECT_FALSE(unlinks_.has(kFile));
  EXPECT_TRUE(unlinks_.has(kOther));
}

TEST_F(PendingUnlinksTest, NothingIsInvalidatedUntilAFileIsStattedOrThereAreMany) {
  for (PendingUnlinks::NodeId file = 0; file < PendingUnlinks::kMost; ++file) {
    unlinks_.begin(100 + file, kDirectory, std::to_string(file));
  }
  EXPECT_EQ(waits(kDirectory), 0);
  unlinks_.begin(kFile, kDirectory, "name");
  await_waits(kDirectory, 1);
  release_all();
  unlinks_.stop();
  EXPECT_FALSE(unlinks_.has(kFile));
}

}  // namespace
}  // namespace cacheshim
