// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "fuse/services/locks/lock_table.h"
#include "store/sys/process_origin.h"
#include "store/sys/raw_locks.h"
#include "store/sys/sys.h"
#include "tests/unit/fuse/lock_requests_fixture.h"

namespace cacheshim {
namespace {

TEST_F(Locks, HoldersBesideTheMountAndOursExcludeEachOther) {
  LockTable table(counters, loop);
  const UniqueFd other = raw();
  EXPECT_EQ(send(table, shared, flock_request(1, F_WRLCK, false))->now(), 0);
  EXPECT_TRUE(sys::lock_file(other.get(), LOCK_EX | LOCK_NB).failed_with(EWOULDBLOCK));
  table.released(shared, 1);
  EXPECT_TRUE(sys::lock_file(other.get(), LOCK_EX | LOCK_NB));
  EXPECT_EQ(send(table, shared, flock_request(2, F_WRLCK, false))->wait(), EAGAIN);
}

TEST_F(Locks, AWaiterGetsALockThatARawHolderReleases) {
  LockTable table(counters, loop);
  UniqueFd other = raw();
  ASSERT_TRUE(sys::lock_file(other.get(), LOCK_EX));
  const auto waiter = send(table, shared, flock_request(1, F_WRLCK, true));
  EXPECT_EQ(waiter->now(), -1);
  other.reset();
  EXPECT_EQ(waiter->wait(), 0);
}

TEST_F(Locks, AWaiterBehindAnotherIsNotTriedWhenARawHolderComesBetween) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, shared, flock_request(1, F_RDLCK, true))->now(), 0);
  UniqueFd other = raw();
  ASSERT_TRUE(sys::lock_file(other.get(), LOCK_SH));
  const auto waiter = send(table, shared, flock_request(2, F_WRLCK, true));
  table.released(shared, 1);
  EXPECT_EQ(waiter->now(), -1);
  other.reset();
  EXPECT_EQ(waiter->wait(), 0);
}

// When the daemon forks to probe its own mount, the child inherits the daemon's descriptors.
TEST_F(Locks, AReleasedLockIsFreeAlthoughAForkedProcessHasItsDescriptor) {
  LockTable table(counters, loop);
  const LockRequest records = record_request(3, F_WRLCK, 0, 10);
  ASSERT_EQ(send(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  ASSERT_EQ(send(table, own, records)->now(), 0);
  const auto waiter = send(table, own, flock_request(2, F_WRLCK, true));
  const auto record_waiter = send(table, own, record_request(4, F_WRLCK, 5, 10));
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  table.released(own, 1);
  table.closed(own, 3, 3);
  EXPECT_EQ(waiter->now(), 0);
  EXPECT_EQ(record_waiter->now(), 0);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(Locks, AnInterruptedWaiterLeavesTheQueueToTheNext) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, flock_request(1, F_RDLCK, true))->now(), 0);
  const auto writer = send(table, own, flock_request(2, F_WRLCK, true));
  const auto reader = send(table, own, flock_request(3, F_RDLCK, true));
  EXPECT_EQ(reader->now(), -1);
  table.interrupt(writer->ticket);
  EXPECT_EQ(writer->wait(), EINTR);
  EXPECT_EQ(reader->wait(), 0);
  table.interrupt(writer->ticket);  // too late: no request has this ticket anymore
  EXPECT_EQ(send(table, own, flock_request(4, F_RDLCK, true))->now(), 0);
}

// If the interrupt arrives before the request waits, libfuse reports it from within wait().
TEST_F(Locks, AnInterruptDuringTheCallOfWaitHasEffect) {
  class Interrupted final : public LockReply {
   public:
    Interrupted(LockTable& table, std::shared_ptr<LockOutcome> outcome)
        : table_(table), outcome_(std::move(outcome)) {}
    void wait(std::uint64_t ticket) override { table_.interrupt(ticket); }
    void answer(int error) override { outcome_->set(error); }

   private:
    LockTable& table_;
    const std::shared_ptr<LockOutcome> outcome_;
  };
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  auto outcome = std::make_shared<LockOutcome>();
  table.lock(own, {}, flock_request(2, F_WRLCK, true),
             std::make_unique<Interrupted>(table, outcome));
  EXPECT_EQ(outcome->wait(), EINTR);
}

// The request waits only 3 ms for the release of the handle. On a busy machine, this time may pass before the release,
// so the test tries up to 20 times.
TEST_F(Locks, ANonblockingRequestWaitsForAHandleThatIsBeingClosed) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  std::uint64_t holder = 1;
  for (int outcome = EAGAIN; outcome != 0; ++holder) {
    ASSERT_LE(holder, 20U) << "nobody was ever waited for";
    EXPECT_EQ(send(table, own, flock_request(holder + 1, F_WRLCK, false))->now(), EAGAIN);
    table.closed(own, holder, 99);
    const auto next = send(table, own, flock_request(holder + 1, F_WRLCK, false));
    table.released(own, holder);
    outcome = next->wait();
    if (outcome == 0) continue;
    ASSERT_EQ(outcome, EAGAIN);
    ASSERT_EQ(send(table, own, flock_request(holder + 1, F_WRLCK, true))->now(), 0);
  }
  table.closed(own, holder, 99);
  EXPECT_EQ(send(table, own, flock_request(holder + 1, F_WRLCK, false))->wait(),
            EAGAIN);  // a duplicate of the descriptor remains open
}

TEST_F(Locks, AWithdrawnRequestBlocksNoOther) {
  LockTable table(counters, loop);
  LockRequest shared_request = flock_request(1, F_RDLCK, true);
  shared_request.reports_close = false;
  ASSERT_EQ(send(table, own, shared_request)->now(), 0);
  const auto gives_up = send(table, own, flock_request(2, F_WRLCK, false));
  const auto behind = send(table, own, flock_request(3, F_RDLCK, true));
  EXPECT_EQ(gives_up->wait(), EAGAIN);
  EXPECT_EQ(behind->wait(), 0);
}

TEST_F(Locks, LocksAndWaitersMoveToTheFileThatTheJobsFileBecomes) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  ASSERT_EQ(send(table, own, record_request(2, F_WRLCK, 5, 1))->now(), 0);
  const auto waiter = send(table, own, flock_request(3, F_WRLCK, true));
  table.move(own, shared, [this] { return sys::open_path(path, O_PATH); });
  const UniqueFd other = raw();
  EXPECT_TRUE(sys::lock_file(other.get(), LOCK_EX | LOCK_NB).failed_with(EWOULDBLOCK));
  struct flock range {};
  range.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(other.get(), F_GETLK, &range), 0);
  EXPECT_EQ(range.l_start, 5);
  EXPECT_EQ(send(table, shared, flock_request(4, F_RDLCK, false))->wait(), EAGAIN);
  EXPECT_EQ(waiter->now(), -1);
  table.released(shared, 1);
  EXPECT_EQ(waiter->wait(), 0);
  table.released(shared, 2);
  table.released(shared, 4);
  table.released(own, 3);  // the file's earlier id still works
  EXPECT_TRUE(sys::lock_file(other.get(), LOCK_EX | LOCK_NB));
  EXPECT_FALSE(table.is_in_use(own) || table.is_in_use(shared));
}

TEST_F(Locks, ALockThatCannotBeMovedIsGivenToTheNextWaiter) {
  LockSystem system = LockSystem::real();
  bool fails_once = false;
  system.set = [&](int fd, const LockRequest& request) {
    const bool fails = request.type == F_WRLCK && std::exchange(fails_once, false);
    return fails ? EIO : LockSystem::real().set(fd, request);
  };
  LockTable table(counters, loop, system);
  ASSERT_EQ(send(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  const auto waiter = send(table, own, flock_request(2, F_WRLCK, true));
  fails_once = true;
  table.move(own, shared, [this] { return sys::open_path(path, O_PATH); });
  EXPECT_EQ(waiter->wait(), 0);
}

TEST_F(Locks, RecordLocksOfAnExitedProcessDoNotConflict) {
  LockSystem system = LockSystem::real();
  bool alive = true;
  system.has_ended = [&](pid_t process) { return process == 1001 && !alive; };
  LockTable table(counters, loop, system);
  LockRequest quiet = record_request(1, F_WRLCK, 0, 0);
  quiet.reports_close = false;
  ASSERT_EQ(send(table, own, quiet)->now(), 0);
  LockRequest other = record_request(2, F_WRLCK, 0, 1);
  const auto waiter = send(table, own, other);
  EXPECT_EQ(waiter->now(), -1);
  alive = false;
  EXPECT_EQ(waiter->wait(), 0);
}

// The reader's request is first in the queue and waits for a write lock of process 1002. The next request comes from
// process 1002 itself and, once granted, changes this write lock to a read lock.
TEST_F(Locks, AWaiterGetsALockThatALaterOneWeakens) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, record_request(1, F_WRLCK, 0, 1))->now(), 0);
  ASSERT_EQ(send(table, own, record_request(2, F_WRLCK, 5, 1))->now(), 0);
  const auto reader = send(table, own, record_request(3, F_RDLCK, 5, 1));
  const auto weakens = send(table, own, record_request(2, F_RDLCK, 0, 10));
  EXPECT_EQ(reader->now(), -1);
  EXPECT_EQ(weakens->now(), -1);
  ASSERT_EQ(send(table, own, record_request(1, F_UNLCK, 0, 1))->now(), 0);
  EXPECT_EQ(weakens->now(), 0);
  EXPECT_EQ(reader->now(), 0);
}

TEST_F(Locks, RecordLocksWaitOnlyForConflictingBytes) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, record_request(1, F_WRLCK, 0, 10))->now(), 0);
  ASSERT_EQ(send(table, own, record_request(2, F_WRLCK, 20, 10))->now(), 0);
  const auto low = send(table, own, record_request(3, F_WRLCK, 5, 1));
  const auto high = send(table, own, record_request(4, F_WRLCK, 25, 1));
  EXPECT_EQ(low->now(), -1);
  EXPECT_EQ(high->now(), -1);
  ASSERT_EQ(send(table, own, record_request(2, F_UNLCK, 20, 10))->now(), 0);
  EXPECT_EQ(high->wait(), 0);
  EXPECT_EQ(low->now(), -1);
  table.closed(own, 1, 1);  // as when the process closes one of its descriptors
  EXPECT_EQ(low->wait(), 0);
}

TEST_F(Locks, FindReturnsTheProcessWithTheConflictingLock) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, record_request(1, F_RDLCK, 0, 10))->now(), 0);
  ASSERT_EQ(send(table, own, record_request(2, F_WRLCK, 20, 10))->now(), 0);
  struct flock found {};
  ASSERT_EQ(table.find(own, {}, record_request(3, F_WRLCK, 15, 0), found), 0);
  EXPECT_EQ(found.l_type, F_WRLCK);
  EXPECT_EQ(found.l_start, 20);
  EXPECT_EQ(found.l_len, 10);
  EXPECT_EQ(found.l_pid, 1002);
  ASSERT_EQ(table.find(own, {}, record_request(3, F_RDLCK, 0, 15), found), 0);
  EXPECT_EQ(found.l_type, F_UNLCK);
}

TEST_F(Locks, WithoutFileSystemLocksTheMountsTableLocks) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    LockSystem system = LockSystem::real();
    const LockSystem real = LockSystem::real();
    system.set = [&](int fd, const LockRequest& request) {
      struct stat asked {};
      (void)::fstat(fd, &asked);
      return asked.st_ino == st.st_ino && asked.st_dev == st.st_dev ? error : real.set(fd, request);
    };
    LockTable table(counters, loop, system);
    EXPECT_FALSE(table.state().is_local_only);
    EXPECT_EQ(send(table, shared, flock_request(1, F_WRLCK, true))->now(), 0) << error;
    EXPECT_TRUE(table.state().is_local_only);
    EXPECT_EQ(send(table, shared, flock_request(2, F_WRLCK, false))->now(), EAGAIN);
    const auto waiter = send(table, shared, flock_request(3, F_WRLCK, true));
    table.released(shared, 1);
    EXPECT_EQ(waiter->wait(), 0);
  }
}

// ENOLCK counts as "no support for locks" only before the first lock. Later, a request must fail with
// ENOLCK: if the daemon used its own table instead, two owners could get the lock.
TEST_F(Locks, AShortageOfLocksIsAnError) {
  LockSystem system = LockSystem::real();
  const LockSystem real = LockSystem::real();
  std::atomic<bool> is_short{false};
  system.set = [&](int fd, const LockRequest& request) {
    return is_short ? ENOLCK : real.set(fd, request);
  };
  LockTable table(counters, loop, system);
  ASSERT_EQ(send(table, shared, flock_request(1, F_RDLCK, true))->now(), 0);
  table.released(shared, 1);
  is_short = true;
  EXPECT_EQ(send(table, shared, flock_request(2, F_WRLCK, true))->now(), ENOLCK);
  EXPECT_FALSE(table.state().is_local_only);
}

TEST_F(Locks, ClosingFailsWaitingAndLaterRequests) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  const auto waiter = send(table, own, flock_request(2, F_WRLCK, true));
  table.close().give();
  EXPECT_EQ(waiter->wait(), ENOLCK);
  EXPECT_EQ(send(table, own, flock_request(3, F_WRLCK, true))->now(), ENOLCK);
  EXPECT_EQ(send(table, own, flock_request(1, F_UNLCK, true))->now(), 0);
}

// The caller of close() holds a lock. So close() only returns the replies, and the caller sends them after releasing
// the lock.
TEST_F(Locks, CloseReturnsTheRepliesWithoutSendingThem) {
  LockTable table(counters, loop);
  ASSERT_EQ(send(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  const auto waiter = send(table, own, flock_request(2, F_WRLCK, true));
  PendingReplies replies = table.close();
  EXPECT_EQ(waiter->now(), -1);
  replies.give();
  EXPECT_EQ(waiter->now(), ENOLCK);
}

// The release hook itself calls unless_wanted(). If that call counted as a release, the hook would be called again
// without end.
TEST_F(Locks, ACheckWhetherALockIsWantedIsNoRelease) {
  LockTable table(counters, loop);
  int releases = 0;
  table.set_release_hook([&] { ++releases; });
  ASSERT_EQ(send(table, shared, flock_request(1, F_WRLCK, true))->now(), 0);
  releases = 0;
  const auto open = [this] { return sys::open_path(path, O_PATH); };
  EXPECT_TRUE(table.unless_wanted(shared, open, -1, [] { return Status(); }).failed_with(EBUSY));
  EXPECT_EQ(releases, 0);
  table.released(shared, 1);
  EXPECT_EQ(releases, 1);
}

TEST_F(Locks, AProcessThatOnlyLooksForALockDoesNotWantIt) {
  LockTable table(counters, loop);
  struct flock found {};
  EXPECT_EQ(table.find(own, {}, record_request(1, F_WRLCK, 0, 0), found), 0);
  EXPECT_FALSE(table.is_wanted(own));
  ASSERT_EQ(send(table, own, record_request(1, F_WRLCK, 0, 0))->now(), 0);
  EXPECT_TRUE(table.is_wanted(own));
  ASSERT_EQ(send(table, own, record_request(1, F_UNLCK, 0, 0))->now(), 0);
  EXPECT_FALSE(table.is_wanted(own));
}

TEST_F(Locks, ManyThreadsExcludeEachOther) {
  LockTable table(counters, loop);
  // Guarded by the lock under test: ThreadSanitizer reports a data race if the lock fails.
  int inside = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t handle = 1; handle <= 8; ++handle) {
    threads.emplace_back([&, handle] {
      for (int round = 0; round < 200; ++round) {
        if (send(table, own, flock_request(handle, F_WRLCK, true))->wait() != 0) ADD_FAILURE();
        if (++inside != 1) ADD_FAILURE();
        --inside;
        if (round % 2 == 0) {
          (void)send(table, own, flock_request(handle, F_UNLCK, true));
        } else {
          table.released(own, handle);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RawLocks, AreReadFromTheTableOfTheKernel) {
  constexpr const char* kTable =
      "1: FLOCK  ADVISORY  WRITE 100 08:01:11 0 EOF\n"
      "1: -> FLOCK  ADVISORY  WRITE 200 08:01:11 0 EOF\n"
      "2: POSIX  ADVISORY  READ  300 08:01:22 10 19\n"
      "3: OFDLCK ADVISORY  WRITE -1 08:01:33 0 EOF\n"
      "4: LEASE  ACTIVE    READ  400 08:01:44 0 EOF\n";
  const dev_t device = makedev(8, 1);
  EXPECT_TRUE(is_locked_elsewhere(kTable, device, 11, 100));  // another process waits for the lock
  EXPECT_TRUE(is_locked_elsewhere(kTable, device, 22, 100));
  EXPECT_FALSE(is_locked_elsewhere(kTable, device, 22, 300));
  EXPECT_FALSE(is_locked_elsewhere(kTable, device, 33, 100));
  EXPECT_FALSE(is_locked_elsewhere(kTable, device, 44, 100));
  EXPECT_FALSE(is_locked_elsewhere(kTable, device, 1, 100));
  EXPECT_FALSE(is_locked_elsewhere(kTable, makedev(8, 2), 11, 1));
}

TEST(ProcessOrigin, FindsDescendantsOfADeadProcess) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t creator = ::fork();
  if (creator == 0) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    (void)!::write(ends[1], &child, sizeof child);
    for (;;) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  const ProcessOrigin origin = origin_of(creator);
  EXPECT_EQ(origin.process, creator);
  ASSERT_FALSE(origin.ancestors.empty());
  EXPECT_EQ(origin.ancestors.front(), ::getpid());
  EXPECT_TRUE(is_alive(origin));
  (void)::kill(creator, SIGKILL);
  ASSERT_EQ(::waitpid(creator, nullptr, 0), creator);
  EXPECT_FALSE(is_alive(origin));
  const auto found = possible_descendants(origin);
  EXPECT_NE(std::find(found.begin(), found.end(), child), found.end());
  // This process is older than the dead one, so it cannot be a descendant.
  EXPECT_EQ(std::find(found.begin(), found.end(), ::getpid()), found.end());
  (void)::kill(child, SIGKILL);
  (void)::close(ends[0]);
  (void)::close(ends[1]);
}

}  // namespace
}  // namespace cacheshim
