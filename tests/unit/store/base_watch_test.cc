// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "store/base/base_watch.h"
#include "store/threads/event_loop.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

class InotifyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_.start();
    watch_ =
        BaseWatch::start(loop_, {base_.get()}, WatchMode::kInotify, [this](const auto& changes) {
          const bool is_unknown = std::any_of(
              changes.begin(), changes.end(),
              [](const BaseChange& one) { return one.kind == BaseChange::Kind::kUnknown; });
          if (is_unknown && !is_told_.exchange(true)) told_.set_value();
        });
    ASSERT_NE(watch_, nullptr);
    ASSERT_EQ(watch_->mode(), WatchMode::kInotify);
  }
  void TearDown() override { watch_.reset(); }

  Scratch scratch_;
  UniqueFd base_ = scratch_.open_dir("base");
  std::atomic<bool> is_told_{false};
  std::promise<void> told_;
  EventLoop loop_;
  std::unique_ptr<BaseWatch> watch_;
};

// The watch records only the topmost absent directory, "none". This record covers all directories below it.
TEST_F(InotifyTest, ReportsADirectoryThatAppearsAboveALookedUpOne) {
  EXPECT_TRUE(watch_->ensure("none/a/b"));
  EXPECT_TRUE(watch_->ensure("none/a/c"));
  std::filesystem::create_directories(scratch_ / "base/none/a/b");
  EXPECT_EQ(told_.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(watch_->ensure("none/a/b"));
}

TEST_F(InotifyTest, AbsentDirectoriesHaveALimit) {
  std::filesystem::create_directories(scratch_ / "base/there");
  constexpr int kMany = 1 << 17;
  int accepted = 0;
  for (int i = 0; i < kMany; ++i) {
    accepted += watch_->ensure("none" + std::to_string(i) + "/a/b") ? 1 : 0;
  }
  EXPECT_LT(accepted, kMany);
  EXPECT_GT(accepted, 1000);
  EXPECT_TRUE(watch_->ensure("there"));
  EXPECT_TRUE(watch_->ensure("none0/a/other"));
}

}  // namespace
}  // namespace cacheshim
