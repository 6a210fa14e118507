// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "store/threads/fair_queue.h"

namespace cacheshim {
namespace {

constexpr uid_t kUser = 20001;
constexpr uid_t kOther = 20002;
constexpr uid_t kThird = 20003;

// Tests the order of the tasks, with an executor that the test controls.
class FairOrderTest : public ::testing::Test {
 protected:
  void add(const FairUser& user, const std::string& name, IsWanted is_wanted = {}) {
    order_.add({user, [this, name] { ran_ += name; }, std::move(is_wanted)});
  }
  // Starts the next task, which stays in progress until end() is called. Returns false if no task
  // may start.
  bool start() {
    const auto task = order_.take();
    if (task) task->run();
    return task.has_value();
  }
  // Runs one task after another until no task may start.
  void run_all() {
    while (const auto task = order_.take()) {
      task->run();
      order_.end(task->user);
    }
  }

  FairOrder order_{2};
  std::string ran_;
};

TEST_F(FairOrderTest, UsersTakeTurns) {
  for (const char* name : {"a", "b", "c", "d"}) add(kUser, name);
  for (const char* name : {"x", "y"}) add(kOther, name);
  add(kThird, "1");
  run_all();
  EXPECT_EQ(ran_, "ax1bycd");
  EXPECT_TRUE(order_.is_empty());
}

TEST_F(FairOrderTest, AUsersNewTaskStartsBeforeTheOldOnesOfABusyUser) {
  for (int task = 0; task < 1000; ++task) add(kUser, "a");
  EXPECT_TRUE(start());
  EXPECT_TRUE(start());
  add(kOther, "x");
  EXPECT_TRUE(start());
  EXPECT_EQ(ran_, "aax");
}

TEST_F(FairOrderTest, AUserRunsOnlySomeTasksAtATime) {
  for (const char* name : {"a", "b", "c"}) add(kUser, name);
  EXPECT_TRUE(start() && start());
  EXPECT_FALSE(order_.has_next());
  EXPECT_FALSE(start());
  add(kOther, "x");
  EXPECT_TRUE(order_.has_next());
  EXPECT_TRUE(start());
  EXPECT_FALSE(start());
  order_.end(kUser);
  EXPECT_TRUE(start());
  EXPECT_EQ(ran_, "abxc");
  EXPECT_TRUE(order_.is_empty());
}

TEST_F(FairOrderTest, RootsWorkForAUserDoesNotWaitForTheUsersTasks) {
  for (const char* name : {"a", "b", "c"}) add(kUser, name);
  EXPECT_TRUE(start() && start());
  add({kUser, /*is_by_root=*/true}, "r");
  EXPECT_TRUE(start());
  EXPECT_EQ(ran_, "abr");
}

TEST_F(FairOrderTest, UnwantedTasksAreDroppedAndTakeNoTurn) {
  bool is_wanted = true;
  add(kUser, "a", [&] { return is_wanted; });
  add(kUser, "b");
  add(kOther, "x", [&] { return is_wanted; });
  add(kThird, "1");
  is_wanted = false;
  run_all();
  EXPECT_EQ(ran_, "b1");
  EXPECT_EQ(order_.take_dropped().size(), 2U);
  EXPECT_TRUE(order_.take_dropped().empty());
}

TEST_F(FairOrderTest, TheUnwantedTasksOfOneUserCanBeDropped) {
  bool is_wanted = true;
  for (int task = 0; task < 3; ++task) add(kUser, "a", [&] { return is_wanted; });
  add(kUser, "b");
  add(kOther, "x", [&] { return is_wanted; });
  EXPECT_EQ(order_.drop_unwanted(kUser), 4U);
  is_wanted = false;
  EXPECT_EQ(order_.drop_unwanted(kUser), 1U);
  EXPECT_EQ(order_.drop_unwanted(kThird), 0U);
  is_wanted = true;
  run_all();
  EXPECT_EQ(ran_, "bx");
}

// A task that blocks after it has started, until the test releases it.
class Held {
 public:
  std::function<void()> task() {
    return [state = state_] {
      state->started.set_value();
      state->go_on.get_future().wait();
    };
  }
  void wait_for_start() { state_->started.get_future().wait(); }
  void release() { state_->go_on.set_value(); }

 private:
  struct State {
    std::promise<void> started;
    std::promise<void> go_on;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(FairQueue, AUserWhoseTasksDoNotEndDelaysNobodyElse) {
  FairQueue queue({.threads = 3, .running = 2});
  std::vector<Held> held(5);
  for (Held& one : held) queue.post(kUser, one.task());
  held[0].wait_for_start();
  held[1].wait_for_start();
  std::promise<void> done;
  queue.post(kOther, [&] { done.set_value(); });
  done.get_future().wait();  // hangs if the other tasks of kUser use the third thread
  for (Held& one : held) one.release();
  queue.stop();
}

TEST(FairQueue, EachUserHasALimitOfWaitingTasks) {
  FairQueue queue({.threads = 2, .running = 1, .waiting = 2});
  Held held;
  queue.post(kUser, held.task());
  held.wait_for_start();
  bool is_wanted = true;
  EXPECT_TRUE(queue.try_post({kUser, [] {}, [&] { return is_wanted; }}));
  EXPECT_TRUE(queue.try_post({kUser, [] {}}));
  EXPECT_FALSE(queue.try_post({kUser, [] {}}));
  EXPECT_TRUE(queue.try_post({kOther, [] {}}));
  is_wanted = false;  // the client of the first waiting task has gone, so another task may wait
  EXPECT_TRUE(queue.try_post({kUser, [] {}}));
  held.release();
}

TEST(FairQueue, StopRunsTheTasksThatWait) {
  std::atomic<int> ran{0};
  {
    FairQueue queue({.threads = 2, .running = 1});
    Held held;
    queue.post(kUser, held.task());
    for (int task = 0; task < 10; ++task) queue.post(kUser, [&] { ++ran; });
    for (int task = 0; task < 10; ++task) queue.post(kOther, [&] { ++ran; });
    held.release();
  }
  EXPECT_EQ(ran, 20);
}

TEST(FairQueue, ATaskThatThrowsEndsNoThread) {
  FairQueue queue({.threads = 1, .running = 1});
  queue.post(kUser, [] { throw std::runtime_error("a test"); });
  std::promise<void> done;
  queue.post(kUser, [&] { done.set_value(); });
  done.get_future().wait();
}

}  // namespace
}  // namespace cacheshim
