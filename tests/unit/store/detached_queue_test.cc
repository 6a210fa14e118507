// SPDX-License-Identifier: Apache-2.0
#include "store/threads/detached_queue.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace cacheshim {
namespace {

constexpr std::size_t kMost = 8;

// Records the tasks that have begun. Each task keeps the log alive, because tasks may outlive the queue. The task
// "held" blocks until the test releases it.
class Log {
 public:
  void add(const std::string& name) {
    std::unique_lock lock(mutex_);
    names_.push_back(name);
    changed_.notify_all();
    if (name == "held") changed_.wait(lock, [&] { return is_released_; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    changed_.notify_all();
  }
  void await(const std::string& name) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !names_.empty() && names_.back() == name; });
  }
  std::vector<std::string> names() {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> names_;
  bool is_released_ = false;
};

class DetachedQueueTest : public ::testing::Test {
 protected:
  ~DetachedQueueTest() override { log_->release(); }

  bool post(const std::string& name, std::size_t most = kMost) {
    return queue_.try_post([log = log_, name](const IsWanted&) { log->add(name); }, most);
  }

  const std::shared_ptr<Log> log_ = std::make_shared<Log>();
  DetachedQueue queue_;
};

TEST_F(DetachedQueueTest, RunsTheTasksInTheirOrder) {
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(post(name));
  log_->await("c");
  EXPECT_EQ(log_->names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(queue_.stop());
}

TEST_F(DetachedQueueTest, RefusesMoreTasksThanTheCallerAllows) {
  EXPECT_TRUE(post("held", 1));
  log_->await("held");
  EXPECT_FALSE(post("refused", 1));
  EXPECT_TRUE(post("next", 2));
  EXPECT_FALSE(post("refused", 2));
  log_->release();
  log_->await("next");
  EXPECT_TRUE(queue_.stop());
  EXPECT_EQ(log_->names(), (std::vector<std::string>{"held", "next"}));
}

TEST_F(DetachedQueueTest, ATaskThatThrowsEndsOnlyItself) {
  EXPECT_TRUE(queue_.try_post([](const IsWanted&) { throw std::bad_alloc(); }, kMost));
  EXPECT_TRUE(post("next"));
  log_->await("next");
}

TEST_F(DetachedQueueTest, StopsAlthoughATaskIsBlocked) {
  EXPECT_TRUE(post("held"));
  log_->await("held");
  EXPECT_TRUE(post("dropped"));
  EXPECT_FALSE(queue_.stop());
  EXPECT_FALSE(post("refused"));
  log_->release();
  EXPECT_TRUE(queue_.stop());
  EXPECT_EQ(log_->names(), std::vector<std::string>{"held"});
}

TEST_F(DetachedQueueTest, ATaskLearnsThatTheQueueStops) {
  EXPECT_TRUE(queue_.try_post(
      [log = log_](const IsWanted& is_wanted) {
        log->add(is_wanted() ? "wanted" : "unwanted");
        log->add("held");
        log->add(is_wanted() ? "wanted" : "unwanted");
      },
      kMost));
  log_->await("held");
  EXPECT_FALSE(queue_.stop());
  log_->release();
  log_->await("unwanted");
}

}  // namespace
}  // namespace cacheshim
