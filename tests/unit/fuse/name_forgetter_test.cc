// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/name_forgetter.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cacheshim {
namespace {

// Simulates the kernel, which blocks the notice of the name "held" until the test releases it.
class Kernel final : public NoticeWriter {
 public:
  Kernel() : NoticeWriter(-1) {}

  void send(const Notice& notice) const override {
    std::unique_lock lock(mutex_);
    sent_.push_back(notice.name);
    changed_.notify_all();
    if (notice.name == "held") changed_.wait(lock, [&] { return is_released_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    changed_.notify_all();
  }
  void await(const std::string& name) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !sent_.empty() && sent_.back() == name; });
  }
  std::vector<std::string> sent() const {
    const std::lock_guard lock(mutex_);
    return sent_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::vector<std::string> sent_;
  bool is_released_ = false;
};

std::vector<Notice> names(const std::vector<std::string>& all) {
  std::vector<Notice> notices;
  for (const std::string& name : all) notices.push_back({1, name, Notice::Kind::kForget});
  return notices;
}

class NameForgetterTest : public ::testing::Test {
 protected:
  const std::shared_ptr<Kernel> kernel_ = std::make_shared<Kernel>();
  NameForgetter forgetter_{kernel_};
};

TEST_F(NameForgetterTest, SendsTheNamesInTheirOrder) {
  forgetter_.begin(names({"a", "b", "c"}));
  kernel_->await("c");
  EXPECT_EQ(kernel_->sent(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(forgetter_.stop());
}

TEST_F(NameForgetterTest, TakesNoFurtherNamesWhileItIsBlocked) {
  forgetter_.begin(names({"held", "next"}));
  kernel_->await("held");
  forgetter_.begin(names({"further"}));
  kernel_->release();
  kernel_->await("next");
  EXPECT_TRUE(forgetter_.stop());
  EXPECT_EQ(kernel_->sent(), (std::vector<std::string>{"held", "next"}));
}

TEST_F(NameForgetterTest, StopsAlthoughItIsBlocked) {
  forgetter_.begin(names({"held", "next"}));
  kernel_->await("held");
  EXPECT_FALSE(forgetter_.stop());
  kernel_->release();
  EXPECT_TRUE(forgetter_.stop());
  forgetter_.begin(names({"further"}));
  EXPECT_EQ(kernel_->sent(), std::vector<std::string>{"held"});
}

}  // namespace
}  // namespace cacheshim
