// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/support/child.h"
#include "tests/unit/kernel/kernel_fixture.h"

// Tests lock requests and interrupts, sent as the kernel sends them (fake_kernel.h), and the end of a session.
namespace cacheshim {
namespace {

// With more pending requests than this, the socket might have no room for all replies.
constexpr std::size_t kMostAtOnce = 40;
constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::int64_t>::max();

class FuseKernelLocks : public FuseKernelTest {
 protected:
  FuseKernelLocks() { EXPECT_TRUE(calls_.put(directory_, "data", "text")); }

  // Opens the file as another process would. The kernel reports closes of this handle (FLUSH).
  OpenNode open_again() {
    const auto file = calls_.open(*calls_.lookup(directory_, "data"), O_RDWR);
    EXPECT_TRUE(file);
    return *file;
  }
  // Returns the bytes of a lock request. The owner has the same number as the handle.
  static std::string range_bytes(const OpenNode& file, std::uint32_t type, std::uint64_t start,
                                 std::uint64_t end) {
    fuse_lk_in body{};
    body.fh = body.owner = file.fh;
    body.lk = {start, end, type, static_cast<std::uint32_t>(::getpid())};
    return bytes_of(body);
  }
  static std::string lock_bytes(const OpenNode& file, std::uint32_t type) {
    return range_bytes(file, type, 0, kToTheEnd);
  }
  static std::string flock_bytes(const OpenNode& file, std::uint32_t type) {
    fuse_lk_in body{};
    body.fh = body.owner = file.fh;
    body.lk.type = type;
    body.lk.pid = static_cast<std::uint32_t>(::getpid());
    body.lk_flags = FUSE_LK_FLOCK;
    return bytes_of(body);
  }
  int lock(const OpenNode& file, std::uint32_t type) {
    return kernel_.call(FUSE_SETLK, file.node, lock_bytes(file, type)).error;
  }
  // Sends a request that must wait. Returns the request's number once the request waits.
  std::uint64_t send_waiting(const OpenNode& file, const std::string& body) {
    const std::size_t before = mount_.locks.state().waiting_handles;
    const std::uint64_t number = kernel_.send(FUSE_SETLKW, file.node, body);
    EXPECT_TRUE(becomes_true([&] { return mount_.locks.state().waiting_handles > before; }));
    return number;
  }
  void flush(const OpenNode& file) {
    fuse_flush_in body{};
    body.fh = body.lock_owner = file.fh;
    EXPECT_EQ(kernel_.call(FUSE_FLUSH, file.node, bytes_of(body)).error, 0);
  }

  const std::uint64_t view_ = view_of("one");
  const std::uint64_t directory_ = *calls_.lookup(view_, "fam");
};

TEST_F(FuseKernelLocks, AnInterruptedWaiterGetsEINTR) {
  const OpenNode holder = open_again();
  const OpenNode other = open_again();
  ASSERT_EQ(lock(holder, F_WRLCK), 0);
  const std::uint64_t waiter = send_waiting(other, lock_bytes(other, F_WRLCK));
  EXPECT_EQ(kernel_.replies_to(waiter), 0U);
  kernel_.interrupt(waiter);
  EXPECT_EQ(kernel_.wait_for(waiter).error, EINTR);
  EXPECT_EQ(lock(other, F_WRLCK), EAGAIN);
  EXPECT_EQ(lock(holder, F_UNLCK), 0);
  EXPECT_EQ(lock(other, F_WRLCK), 0);
  EXPECT_EQ(kernel_.replies_to(waiter), 1U);
}

TEST_F(FuseKernelLocks, AnInterruptThatArrivesBeforeItsRequestHasEffect) {
  const OpenNode holder = open_again();
  const OpenNode other = open_again();
  ASSERT_EQ(lock(holder, F_WRLCK), 0);
  kernel_.interrupt(kernel_.next_number());
  const std::uint64_t waiter = kernel_.send(FUSE_SETLKW, other.node, lock_bytes(other, F_WRLCK));
  EXPECT_EQ(kernel_.wait_for(waiter).error, EINTR);
}

TEST_F(FuseKernelLocks, AnUnlockGrantsTheLockToTheWaiter) {
  const OpenNode holder = open_again();
  const OpenNode other = open_again();
  for (const auto& bytes_for : {&lock_bytes, &flock_bytes}) {
    ASSERT_EQ(kernel_.call(FUSE_SETLKW, holder.node, bytes_for(holder, F_WRLCK)).error, 0);
    const std::uint64_t waiter = send_waiting(other, bytes_for(other, F_WRLCK));
    EXPECT_EQ(kernel_.replies_to(waiter), 0U);
    EXPECT_EQ(kernel_.call(FUSE_SETLK, holder.node, bytes_for(holder, F_UNLCK)).error, 0);
    EXPECT_EQ(kernel_.wait_for(waiter).error, 0);
    EXPECT_EQ(kernel_.call(FUSE_SETLK, holder.node, bytes_for(holder, F_RDLCK)).error, EAGAIN);
  }
}

// Each FLUSH costs a round trip, so the daemon asks the kernel to report closes only if a lock is likely.
TEST_F(FuseKernelLocks, ClosesAreReportedIfALockIsLikely) {
  scratch_.write("store/fam/finished", "text");
  const auto node = calls_.lookup(directory_, "finished");
  ASSERT_TRUE(node);
  const auto reports_closes = [&](int flags) {
    const auto file = calls_.open(*node, flags);
    return file && (file->flags & FOPEN_NOFLUSH) == 0;
  };
  EXPECT_FALSE(reports_closes(O_RDONLY));
  EXPECT_FALSE(reports_closes(O_RDWR)) << "this open has copied the file up";
  EXPECT_TRUE(reports_closes(O_RDWR));
  EXPECT_FALSE(reports_closes(O_WRONLY));
}

TEST_F(FuseKernelLocks, ClosesOfALockedFileAreReportedAlsoAfterItsCopyUp) {
  scratch_.write("store/fam/locked", "text");
  const auto node = calls_.lookup(directory_, "locked");
  ASSERT_TRUE(node);
  const auto reader = calls_.open(*node, O_RDONLY);
  ASSERT_TRUE(reader);
  ASSERT_EQ(lock(*reader, F_RDLCK), 0);
  const auto writer = calls_.open(*node, O_RDWR);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->flags & FOPEN_NOFLUSH, 0U);
}

TEST_F(FuseKernelLocks, AFlushReleasesRecordLocksAndAReleaseBothKinds) {
  OpenNode holder = open_again();
  const OpenNode other = open_again();
  ASSERT_EQ(lock(holder, F_WRLCK), 0);
  const std::uint64_t record_waiter = send_waiting(other, lock_bytes(other, F_WRLCK));
  flush(holder);
  EXPECT_EQ(kernel_.wait_for(record_waiter).error, 0);
  ASSERT_EQ(kernel_.call(FUSE_SETLK, holder.node, flock_bytes(holder, F_WRLCK)).error, 0);
  const std::uint64_t flock_waiter = send_waiting(other, flock_bytes(other, F_WRLCK));
  flush(holder);
  EXPECT_EQ(kernel_.replies_to(flock_waiter), 0U);
  EXPECT_TRUE(calls_.release(holder));
  EXPECT_EQ(kernel_.wait_for(flock_waiter).error, 0);
}

TEST_F(FuseKernelLocks, GetlkNamesTheHolderAndItsBytes) {
  const OpenNode holder = open_again();
  const OpenNode other = open_again();
  ASSERT_EQ(kernel_.call(FUSE_SETLK, holder.node, range_bytes(holder, F_WRLCK, 10, 19)).error, 0);
  const auto found =
      kernel_.call(FUSE_GETLK, other.node, lock_bytes(other, F_RDLCK)).as<fuse_lk_out>().lk;
  EXPECT_EQ(found.type, static_cast<std::uint32_t>(F_WRLCK));
  EXPECT_EQ(found.start, 10U);
  EXPECT_EQ(found.end, 19U);
  EXPECT_EQ(found.pid, static_cast<std::uint32_t>(::getpid()));
  const auto free =
      kernel_.call(FUSE_GETLK, other.node, range_bytes(other, F_RDLCK, 20, 29)).as<fuse_lk_out>();
  EXPECT_EQ(free.lk.type, static_cast<std::uint32_t>(F_UNLCK));
}

// When the session ends, waiting requests fail while the receivers can still send the replies.
TEST_F(FuseKernelLocks, EveryRequestIsAnsweredOnceWhenTheSessionEnds) {
  const OpenNode holder = open_again();
  ASSERT_EQ(lock(holder, F_WRLCK), 0);
  ASSERT_EQ(kernel_.call(FUSE_SETLK, holder.node, flock_bytes(holder, F_WRLCK)).error, 0);
  std::vector<std::uint64_t> waiters;
  for (int at = 0; at < 8; ++at) {
    const OpenNode other = open_again();
    waiters.push_back(send_waiting(
        other, at % 2 == 0 ? lock_bytes(other, F_WRLCK) : flock_bytes(other, F_RDLCK)));
  }
  std::vector<std::uint64_t> others;
  for (int at = 0; at < 200; ++at) {
    others.push_back(kernel_.send(FUSE_GETATTR, directory_, bytes_of(fuse_getattr_in{})));
    others.push_back(kernel_.send(FUSE_LOOKUP, directory_, name_bytes("file")));
    if (others.size() % kMostAtOnce == 0) {
      EXPECT_NE(kernel_.wait_for(others.back()).error, ETIME);
    }
  }
  mount_.fail_waits();
  for (const std::uint64_t number : waiters) EXPECT_EQ(kernel_.wait_for(number).error, ENOLCK);
  for (const std::uint64_t number : others) EXPECT_NE(kernel_.wait_for(number).error, ETIME);
  end();
  waiters.insert(waiters.end(), others.begin(), others.end());
  for (const std::uint64_t number : waiters) EXPECT_EQ(kernel_.replies_to(number), 1U);
}

TEST_F(FuseKernelLocks, ABatonIsRemovedWhenItsCreatorDies) {
  auto creator = std::make_unique<Child>();
  const auto key = calls_.mkdir(directory_, "KEY");
  kernel_.speak_as(::getuid(), ::getgid(), creator->pid());
  const auto baton = calls_.create(*key, "baton", O_WRONLY | O_EXCL);
  ASSERT_TRUE(baton) << baton.error().code();
  kernel_.speak_as(::getuid(), ::getgid(), 0);
  EXPECT_TRUE(calls_.lookup(*key, "baton"));
  creator->kill();
  EXPECT_TRUE(becomes_true([&] { return calls_.lookup(*key, "baton").failed_with(ENOENT); }));
  EXPECT_TRUE(kernel_.wait_for_notification([&](const FuseNotification& one) {
    return one.code == FUSE_NOTIFY_INVAL_ENTRY && one.body.find("baton") != std::string::npos;
  }));
}

}  // namespace
}  // namespace cacheshim
