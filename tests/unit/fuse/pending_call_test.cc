// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "fuse/services/single_flight/pending_call.h"
#include "store/sys/process.h"
#include "tests/unit/support/scratch.h"

// The tests use calls that block in the kernel without FUSE: they open a FIFO that has no writer.
namespace cacheshim {
namespace {

class PendingCallTest : public testing::Test {
 protected:
  PendingCallTest() { EXPECT_EQ(::mkfifo(fifo_.c_str(), 0600), 0); }

  // Returns the result of can_wait_after_lookup() for a thread that is blocked in `call`.
  bool asks(const std::function<void()>& call) const {
    std::atomic<pid_t> tid{0};
    std::thread thread([&] {
      tid = ::gettid();
      call();
    });
    for (int polls = 0; polls < 1000 && !sleeps(tid); ++polls) ::usleep(1'000);
    const bool answer = can_wait_after_lookup(tid);
    EXPECT_FALSE(may_complete_entries(tid));
    const int writer = ::open(fifo_.c_str(), O_RDWR);  // unblocks the call
    EXPECT_EQ(::write(writer, "x", 1), 1);
    thread.join();
    ::close(writer);
    return answer;
  }

  const Scratch dir_;
  const std::string fifo_ = dir_ / "fifo";

 private:
  static bool sleeps(pid_t tid) {
    const auto stat = tid != 0 ? stat_of(tid) : std::nullopt;
    return stat && stat->state == 'S';
  }
};

TEST_F(PendingCallTest, AnOpenOfAnExistingFileChangesNothing) {
  EXPECT_TRUE(asks([&] { ::close(::openat(AT_FDCWD, fifo_.c_str(), O_RDONLY)); }));
  EXPECT_TRUE(asks([&] { ::close(::open(fifo_.c_str(), O_RDONLY | O_CLOEXEC)); }));
}

TEST_F(PendingCallTest, AnOpenThatMayCreateDoesMore) {
  EXPECT_FALSE(asks([&] { ::close(::openat(AT_FDCWD, fifo_.c_str(), O_RDONLY | O_CREAT, 0600)); }));
}

TEST_F(PendingCallTest, OtherCallsDoMore) {
  const int reader = ::open(fifo_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  const int writer = ::open(fifo_.c_str(), O_WRONLY);
  ASSERT_EQ(::fcntl(reader, F_SETFL, 0), 0);
  char byte = 0;
  EXPECT_FALSE(asks([&] { EXPECT_EQ(::read(reader, &byte, 1), 1); }));
  ::close(reader);
  ::close(writer);
}

TEST_F(PendingCallTest, NothingIsKnownOfAThreadThatRunsOrHasExited) {
  EXPECT_FALSE(can_wait_after_lookup(::gettid()));
  EXPECT_FALSE(can_wait_after_lookup(0));
}

}  // namespace
}  // namespace cacheshim
