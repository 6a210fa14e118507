// SPDX-License-Identifier: Apache-2.0
#include "store/threads/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/unique_fd.h"

namespace cacheshim {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;
constexpr auto kNever = EventLoop::kNever;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
  }
  void write() const { EXPECT_EQ(::write(writer.get(), "x", 1), 1); }
  UniqueFd reader;
  UniqueFd writer;
};

class EventLoopTest : public testing::Test {
 protected:
  static void wait_for(const std::atomic<int>& count, int least) {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (count < least && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_GE(count, least);
  }
  // Waits until the task has been called at least `calls` times in all.
  void wait_for(int calls) const { wait_for(calls_, calls); }
  // Verifies that the running loop does not call the task again.
  void expect_no_more() const {
    const int calls = calls_;
    for (int more = 0; more < 2; ++more) {  // the current round may already have passed the task
      const int rounds = rounds_;
      round_.wake();
      wait_for(rounds_, rounds + 1);
    }
    EXPECT_EQ(calls_, calls);
  }

  std::atomic<int> calls_{0};
  EventLoop loop_;

 private:
  std::atomic<int> rounds_{0};
  EventLoop::Task round_{loop_, "a round of the loop", [this](const auto&) {
                           ++rounds_;
                           return kNever;
                         }};
};

TEST_F(EventLoopTest, ATaskRunsAfterAWakeAndNotBefore) {
  EventLoop::Task task(loop_, "a test", [&](const auto& readable) {
    EXPECT_TRUE(readable.empty());
    ++calls_;
    return kNever;
  });
  loop_.start();
  expect_no_more();
  task.wake();
  wait_for(1);
  expect_no_more();
}

TEST_F(EventLoopTest, AWakeBeforeTheStartIsNotLost) {
  EventLoop::Task task(loop_, "a test", [&](const auto&) {
    ++calls_;
    return kNever;
  });
  task.wake();
  task.wake();
  EXPECT_EQ(calls_, 0);
  loop_.start();
  wait_for(1);
  expect_no_more();
}

TEST_F(EventLoopTest, ATaskRunsAtTheTimeThatItReturns) {
  const auto begin = Clock::now();
  std::atomic<Clock::time_point> second{};
  EventLoop::Task task(loop_, "a test", [&](const auto&) {
    if (++calls_ == 1) return begin + milliseconds(200);
    second = Clock::now();
    return kNever;
  });
  loop_.start();
  task.wake();
  wait_for(2);
  EXPECT_GE(second.load(), begin + milliseconds(200));
  expect_no_more();
}

TEST_F(EventLoopTest, AWakeReplacesTheTimeOfTheNextCall) {
  EventLoop::Task task(loop_, "a test", [&](const auto&) {
    return ++calls_ == 1 ? Clock::now() + std::chrono::hours(1) : kNever;
  });
  loop_.start();
  task.wake();
  wait_for(1);
  task.wake();
  wait_for(2);
}

TEST_F(EventLoopTest, ATaskGetsTheIdOfAReadableDescriptorOnce) {
  std::vector<std::uint64_t> ids;
  EventLoop::Task task(loop_, "a test", [&](const auto& readable) {
    ids.insert(ids.end(), readable.begin(), readable.end());
    ++calls_;
    return kNever;
  });
  const Pipe one;
  Pipe other;
  EXPECT_TRUE(task.watch(one.reader.get(), 0));
  EXPECT_TRUE(task.watch(other.reader.get(), 7));
  loop_.start();
  expect_no_more();
  one.write();
  wait_for(1);
  expect_no_more();  // although the descriptor is still readable
  other.writer.reset();
  wait_for(2);
  EXPECT_TRUE(task.watch(one.reader.get(), 3));
  wait_for(3);
  task.stop();
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{0, 7, 3}));
}

TEST_F(EventLoopTest, AClosedDescriptorIsNotWatched) {
  EventLoop::Task task(loop_, "a test", [&](const auto&) {
    ++calls_;
    return kNever;
  });
  Pipe pipe;
  EXPECT_TRUE(task.watch(pipe.reader.get(), 0));
  pipe.reader.reset();
  pipe.writer.reset();
  loop_.start();
  expect_no_more();
  EXPECT_FALSE(task.watch(-1, 0));
}

TEST_F(EventLoopTest, AStoppedTaskRunsNoMore) {
  std::atomic<bool> is_held{true};
  auto task = std::make_unique<EventLoop::Task>(loop_, "a test", [&](const auto&) {
    ++calls_;
    while (is_held) std::this_thread::sleep_for(milliseconds(1));
    return Clock::now();  // the loop must call the task again immediately
  });
  loop_.start();
  task->wake();
  wait_for(1);
  std::thread releaser([&] {
    std::this_thread::sleep_for(milliseconds(50));
    is_held = false;
  });
  task->stop();
  EXPECT_FALSE(is_held) << "stop() waits for the call";
  releaser.join();
  expect_no_more();
  task->wake();
  expect_no_more();
  task->stop();
}

TEST_F(EventLoopTest, ATaskThatFailsIsTriedAgainAndOthersGoOn) {
  EventLoop::Task failing(loop_, "a failing test", [&](const auto&) -> Clock::time_point {
    if (++calls_ == 1) throw std::runtime_error("it fails");
    return kNever;
  });
  std::atomic<bool> has_run{false};
  EventLoop::Task other(loop_, "a test", [&](const auto&) {
    has_run = true;
    return kNever;
  });
  loop_.start();
  failing.wake();
  wait_for(1);
  other.wake();
  wait_for(2);
  EXPECT_TRUE(has_run);
}

TEST_F(EventLoopTest, ATaskThatFailsGetsTheReadableDescriptorsAgain) {
  std::vector<std::uint64_t> ids;
  EventLoop::Task task(loop_, "a failing test", [&](const auto& readable) -> Clock::time_point {
    if (++calls_ == 1) throw std::runtime_error("it fails");
    ids = readable;
    return kNever;
  });
  const Pipe one;
  const Pipe other;
  EXPECT_TRUE(task.watch(one.reader.get(), 5));
  EXPECT_TRUE(task.watch(other.reader.get(), 6));
  one.write();
  loop_.run_all();
  other.write();
  loop_.run_all();
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{5, 6}));
  loop_.run_all();
  EXPECT_TRUE(ids.empty()) << "each is reported once";
}

TEST_F(EventLoopTest, ManyThreadsWakeAndEndTasks) {
  loop_.start();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        std::atomic<bool> is_over{false};
        EventLoop::Task task(loop_, "a test", [&](const auto&) {
          EXPECT_FALSE(is_over);
          ++calls_;
          return Clock::now();
        });
        task.wake();
        if (round % 2 == 0) std::this_thread::yield();
        task.stop();
        is_over = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_no_more();
}

TEST_F(EventLoopTest, WithoutAThreadEachTaskRunsOnRequest) {
  EventLoop::Task one(loop_, "a test", [&](const auto&) {
    ++calls_;
    return kNever;
  });
  EventLoop::Task other(loop_, "another test", [&](const auto&) {
    ++calls_;
    return kNever;
  });
  loop_.run_all();
  EXPECT_EQ(calls_, 2);
  loop_.stop();
}

}  // namespace
}  // namespace cacheshim
