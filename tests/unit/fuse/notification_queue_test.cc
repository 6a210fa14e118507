// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/notification_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cacheshim {
namespace {

using Clock = NotificationQueue::Clock;
using Kind = Notification::Kind;

constexpr uid_t kHostile = 1;
constexpr uid_t kUser = 2;
constexpr auto kDeadline = std::chrono::milliseconds(200);

// Simulates the kernel, which blocks the invalidations in some directories until the test releases them.
class Kernel final : public NotificationWriter {
 public:
  Kernel() : NotificationWriter(-1) { set_protocol(44); }

  void send(const Notification& notification) const override {
    std::unique_lock lock(mutex_);
    sent_.push_back(notification);
    changed_.notify_all();
    changed_.wait(
        lock, [&] { return !notification.can_block() || !held_.contains(notification.directory); });
  }

  void hold(std::set<Notification::DirectoryId> directories) {
    const std::lock_guard lock(mutex_);
    held_ = std::move(directories);
    changed_.notify_all();
  }
  void release() { hold({}); }

  void await(const Notification& notification) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return find(notification) > 0; });
  }
  auto times(const Notification& notification) const {
    const std::lock_guard lock(mutex_);
    return find(notification);
  }

 private:
  long find(const Notification& notification) const {
    return std::count_if(sent_.begin(), sent_.end(), [&](const Notification& one) {
      return !(one < notification) && !(notification < one);
    });
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::set<Notification::DirectoryId> held_;
  mutable std::vector<Notification> sent_;
};

const Notification kEpoch{0, {}, Kind::kEpoch};

class NotificationQueueTest : public ::testing::Test {
 protected:
  ~NotificationQueueTest() override {
    kernel_->release();
    while (!queue_->stop()) std::this_thread::yield();
  }

  // Posts a batch. The future gets the argument of the batch's `done`: true if the batch was in time.
  std::future<bool> post(std::vector<Notification> notifications) {
    auto done = std::make_shared<std::promise<bool>>();
    auto result = done->get_future();
    queue_->post(std::move(notifications), {}, [done](bool in_time) { done->set_value(in_time); });
    return result;
  }

  // Makes each of the users late: the kernel blocks an invalidation for the user until the deadline has passed. The
  // invalidation's directory has the user's uid as its number.
  void make_late(const std::set<uid_t>& users) {
    kernel_->hold({users.begin(), users.end()});
    for (const uid_t user : users) {
      const Notification notification{user, "held", Kind::kName, user};
      const auto done = post({notification});
      kernel_->await(notification);
      pass_deadline();
      done.wait();
    }
  }

  void pass_deadline() {
    (void)queue_->check(now_);
    now_ += kDeadline;
    (void)queue_->check(now_);
  }

  // Waits until no user counts as late.
  void wait_until_in_time() const {
    while (late_->any()) std::this_thread::yield();
  }

  const std::shared_ptr<Kernel> kernel_ = std::make_shared<Kernel>();
  const std::shared_ptr<LateOwners> late_ = std::make_shared<LateOwners>(Clock::duration::zero());
  const std::shared_ptr<HeldDirectories> held_ = std::make_shared<HeldDirectories>();
  const std::shared_ptr<NotificationQueue> queue_ =
      NotificationQueue::start(kernel_, late_, held_, {kDeadline, false, [this] { ++watches_; }});
  int watches_ = 0;
  Clock::time_point now_ = Clock::now();
};

TEST_F(NotificationQueueTest, AllOtherInvalidationsGoOnWithoutABlockedOne) {
  kernel_->hold({kHostile});
  const Notification blocked{kHostile, "a", Kind::kName, kHostile};
  const Notification other{kUser, "a", Kind::kName, kUser};
  auto done = post({blocked, other});
  kernel_->await(blocked);
  EXPECT_EQ(kernel_->times(other), 0);
  pass_deadline();
  EXPECT_FALSE(done.get());
  EXPECT_EQ(kernel_->times(other), 1);
  EXPECT_TRUE(late_->is_late(kHostile));
  EXPECT_FALSE(late_->is_late(kUser));
}

TEST_F(NotificationQueueTest, AllNamesExpireBeforeAnAnswerThatWasNotInTime) {
  kernel_->hold({kHostile});
  const Notification blocked{kHostile, "a", Kind::kName, kHostile};
  long epochs = 0;
  std::promise<void> done;
  queue_->post({blocked}, {}, [&](bool) {
    epochs = kernel_->times(kEpoch);
    done.set_value();
  });
  kernel_->await(blocked);
  pass_deadline();
  done.get_future().wait();
  EXPECT_EQ(epochs, 1);
}

TEST_F(NotificationQueueTest, NobodyWaitsBeforeTheDeadlineOrWhileInvalidationsGoOn) {
  EXPECT_TRUE(post({{kUser, "a", Kind::kName, kUser}}).get());
  kernel_->hold({kUser});
  (void)queue_->check(now_);
  const Notification notification{kUser, "b", Kind::kName, kUser};
  auto done = post({notification});
  kernel_->await(notification);
  (void)queue_->check(now_ + kDeadline);  // the first check that sees `notification`
  (void)queue_->check(now_ + 2 * kDeadline - std::chrono::milliseconds(1));
  EXPECT_FALSE(late_->any());
  kernel_->release();
  EXPECT_TRUE(done.get());
  EXPECT_EQ(kernel_->times(kEpoch), 0);
}

TEST_F(NotificationQueueTest, ALateUserDelaysNobodyAgain) {
  make_late({kHostile});
  const Notification same{kHostile, "b", Kind::kName, kHostile};
  const Notification other_directory{7, "b", Kind::kName, kHostile};
  const Notification other{kUser, "b", Kind::kName, kUser};
  EXPECT_FALSE(post({same, other_directory, other}).get());  // returns without a call to check()
  EXPECT_EQ(kernel_->times(other), 1);
  EXPECT_EQ(kernel_->times(same) + kernel_->times(other_directory), 0);
  // From make_late(); since then, the kernel caches nothing of kHostile's view.
  EXPECT_EQ(kernel_->times(kEpoch), 1);
  kernel_->release();
  kernel_->await(same);
  kernel_->await(other_directory);
}

TEST_F(NotificationQueueTest, AListingOfALateUserIsInvalidatedOnceItsDirectoryIsReleased) {
  make_late({kHostile});
  EXPECT_FALSE(post({{kHostile, {}, Kind::kNode, kHostile}}).get());
  EXPECT_EQ(kernel_->times({kHostile, {}, Kind::kAttributes}), 1);
  EXPECT_EQ(kernel_->times({kHostile, {}, Kind::kNode}), 0);
  kernel_->release();
  kernel_->await({kHostile, {}, Kind::kNode});
}

TEST_F(NotificationQueueTest, AUserIsInTimeAgainOnceTheDirectoryIsReleased) {
  make_late({kHostile});
  kernel_->release();
  wait_until_in_time();
  EXPECT_TRUE(post({{kHostile, "b", Kind::kName, kHostile}}).get());
}

TEST_F(NotificationQueueTest, AUserWhoBlocksAgainRemainsLateForTwiceAsLong) {
  constexpr auto kProcess = LateOwners::Cause::kProcess;
  LateOwners late(std::chrono::seconds(1));
  EXPECT_EQ(late.begin(kUser, kProcess, Clock::now()), std::chrono::seconds(1));
  late.stop();
  late.serve(kUser, *kernel_);
  EXPECT_EQ(late.begin(kUser, kProcess, Clock::now()), std::chrono::seconds(2));
  late.serve(kUser, *kernel_);
  EXPECT_EQ(late.begin(kHostile, kProcess, Clock::now()), std::chrono::seconds(1));
  const auto later = Clock::now() + std::chrono::hours(1);
  EXPECT_EQ(late.begin(kUser, kProcess, later), std::chrono::seconds(1));
}

TEST_F(NotificationQueueTest, AUserIsInTimeOnceHisRequestThatWaitedForTheDaemonIsAnswered) {
  LateOwners late(std::chrono::hours(1));
  EXPECT_EQ(late.begin(kUser, LateOwners::Cause::kRequest, Clock::now()), Clock::duration::zero());
  late.serve(kUser, *kernel_);
  EXPECT_FALSE(late.any());
  EXPECT_EQ(late.begin(kUser, LateOwners::Cause::kProcess, Clock::now()), std::chrono::hours(1));
}

TEST_F(NotificationQueueTest, DirectoriesAreHeldUntilTheRequestIsAnswered) {
  auto first = held_->hold({3, 4});
  auto second = held_->hold({4});
  EXPECT_TRUE(held_->contains(3));
  first.reset();
  EXPECT_FALSE(held_->contains(3));
  EXPECT_TRUE(held_->contains(4));
  second.reset();
  EXPECT_FALSE(held_->contains(4));
}

TEST_F(NotificationQueueTest, EveryUserCountsAsLateWhileTooManyAre) {
  std::set<uid_t> users;
  for (uid_t user = 100; user < 100 + LateOwners::kMost; ++user) users.insert(user);
  make_late(users);
  EXPECT_TRUE(late_->is_late(kUser));
  const long epochs = kernel_->times(kEpoch);
  const Notification name{kUser, "a", Kind::kName, kUser};
  EXPECT_FALSE(post({name}).get());
  EXPECT_EQ(kernel_->times(name), 0);
  EXPECT_EQ(kernel_->times(kEpoch), epochs + 1);
  kernel_->release();
  kernel_->await(name);
  wait_until_in_time();
}

TEST_F(NotificationQueueTest, TheQueueEndsWhileAThreadIsBlocked) {
  make_late({kHostile});
  EXPECT_FALSE(queue_->stop());
  auto done = post({{kUser, "a", Kind::kName, kUser}});
  EXPECT_FALSE(done.get());
}

TEST_F(NotificationQueueTest, TheQueueEndsWithoutCallsOfCheck) {
  kernel_->hold({kHostile});
  auto done = post({{kHostile, "a", Kind::kName, kHostile}, {kUser, "a", Kind::kName, kUser}});
  EXPECT_FALSE(queue_->stop());
  EXPECT_FALSE(done.get());
  EXPECT_EQ(kernel_->times({kUser, "a"}), 1);
}

TEST_F(NotificationQueueTest, TheQueueIsWatchedOnlyWhileItIsInUse) {
  post({{kUser, "a", Kind::kName, kUser}}).wait();
  post({{kUser, "b", Kind::kName, kUser}}).wait();
  EXPECT_EQ(watches_, 1);
  EXPECT_LT(queue_->check(now_), Clock::time_point::max());
  while (queue_->check(now_ + std::chrono::seconds(11)) < Clock::time_point::max()) {
    std::this_thread::yield();  // the thread has not removed the last batch yet
  }
  post({{kUser, "c", Kind::kName, kUser}}).wait();
  EXPECT_EQ(watches_, 2);
}

}  // namespace
}  // namespace cacheshim
