// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "fuse/services/single_flight/builder_work.h"

namespace cacheshim {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

class BuilderActivityTest : public testing::Test {
 protected:
  bool note(milliseconds passed, BuilderWork work) { return activity_.note(begin_ + passed, work); }
  bool note(milliseconds passed, milliseconds used) {
    return note(passed, BuilderWork{.used = {{1, used}}});
  }

  const BuilderActivity::Time begin_ = std::chrono::steady_clock::now();
  BuilderActivity activity_;
};

TEST_F(BuilderActivityTest, TimeBeforeTheFirstNoteDoesNotCount) {
  EXPECT_FALSE(note(milliseconds(0), seconds(30)));
  EXPECT_FALSE(note(milliseconds(999), seconds(30)));
  EXPECT_TRUE(note(seconds(1), seconds(30)));
}

TEST_F(BuilderActivityTest, AThreadThatOnlyWakesUpNowAndThenIsIdle) {
  for (int tick = 0; tick < 10; ++tick) {
    EXPECT_FALSE(note(milliseconds(100) * tick, milliseconds(4) * tick));
  }
  EXPECT_TRUE(note(seconds(1), milliseconds(40)));
  EXPECT_FALSE(note(milliseconds(1100), milliseconds(80)));
}

TEST_F(BuilderActivityTest, OnlyTheLastSecondCounts) {
  EXPECT_FALSE(note(seconds(0), seconds(0)));
  EXPECT_FALSE(note(milliseconds(900), milliseconds(60)));
  EXPECT_FALSE(note(milliseconds(1800), milliseconds(60)));
  EXPECT_TRUE(note(milliseconds(1900), milliseconds(60)));
}

TEST_F(BuilderActivityTest, DescendantsThatCameLaterCount) {
  EXPECT_FALSE(note(seconds(0), seconds(0)));
  EXPECT_FALSE(note(seconds(1), BuilderWork{.used = {{1, seconds(0)}, {2, milliseconds(60)}}}));
  EXPECT_TRUE(note(seconds(2), BuilderWork{.used = {{1, seconds(0)}, {2, milliseconds(60)}}}));
  EXPECT_TRUE(note(seconds(3), seconds(0))) << "the child is gone";
}

TEST_F(BuilderActivityTest, AThreadThatGetsNoCpuTimeIsNotIdle) {
  EXPECT_FALSE(note(seconds(0), seconds(0)));
  EXPECT_FALSE(note(seconds(1), BuilderWork{.is_running = true}));
  EXPECT_TRUE(note(seconds(2), seconds(0)));
}

// ---- activity according to /proc

Process this_thread() {
  const pid_t thread = ::gettid();
  return {thread, stat_of(thread)->start_time};
}

nanoseconds total(const std::optional<BuilderWork>& work) {
  nanoseconds sum{0};
  for (const auto& [process, used] : work->used) sum += used;
  return sum;
}

// Uses CPU time until `done` returns true.
void spin(const std::function<bool()>& done) {
  while (!done()) {
  }
}

TEST(BuilderWork, OtherThreadsOfTheBuilderCount) {
  const Process thread = this_thread();
  const auto before = work_of(::getpid(), thread);
  ASSERT_TRUE(before);
  EXPECT_FALSE(before->has_ended);
  std::atomic<bool> is_done{false};
  std::thread other([&] { spin([&] { return is_done.load(); }); });
  for (int polls = 0; polls < 1000; ++polls) {
    if (total(work_of(::getpid(), thread)) - total(before) > milliseconds(50)) break;
    ::usleep(10'000);
  }
  is_done = true;
  other.join();
  EXPECT_GT(total(work_of(::getpid(), thread)) - total(before), milliseconds(50));
}

TEST(BuilderWork, DescendantsCount) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() == 0) {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      spin([] { return false; });
    }
    for (;;) ::pause();
  }
  const Process thread = this_thread();
  const auto before = work_of(::getpid(), thread);
  nanoseconds most{0};
  for (int polls = 0; polls < 1000 && most < milliseconds(50); ++polls) {
    ::usleep(10'000);
    most = total(work_of(::getpid(), thread)) - total(before);
  }
  (void)::kill(child, SIGKILL);
  (void)::waitpid(child, nullptr, 0);
  EXPECT_GE(most, milliseconds(50));
}

TEST(BuilderWork, AThreadThatDoesNotExistHasEnded) {
  std::promise<Process> process;
  std::thread([&] { process.set_value(this_thread()); }).join();
  const Process thread = process.get_future().get();
  std::optional<BuilderWork> work;
  // join() may return before the kernel has removed the thread from /proc.
  for (int polls = 0; polls < 1000; ++polls) {
    work = work_of(::getpid(), thread);
    if (work && work->has_ended) break;
    ::usleep(10'000);
  }
  ASSERT_TRUE(work);
  EXPECT_TRUE(work->has_ended);
}

TEST(BuilderWork, AnotherThreadWithTheSameNumberIsNotTheBuilders) {
  Process thread = this_thread();
  ++thread.start_time;
  const auto work = work_of(::getpid(), thread);
  ASSERT_TRUE(work);
  EXPECT_TRUE(work->has_ended);
}

}  // namespace
}  // namespace cacheshim
