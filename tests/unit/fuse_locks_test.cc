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
#include "tests/unit/scratch.h"

namespace cacheshim {
namespace {

constexpr std::chrono::seconds kDeadline{10};

// What became of one call.
class Outcome {
 public:
  void set(int error) {
    const std::lock_guard lock(mutex_);
    error_ = error;
    changed_.notify_all();
  }
  // The answer; -1 where there is none.
  int now() {
    const std::lock_guard lock(mutex_);
    return error_.value_or(-1);
  }
  int wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kDeadline, [this] { return error_.has_value(); });
    return error_.value_or(-1);
  }
  std::atomic<std::uint64_t> ticket{0};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<int> error_;
};

class Call final : public LockCall {
 public:
  explicit Call(std::shared_ptr<Outcome> outcome) : outcome_(std::move(outcome)) {}
  void wait(std::uint64_t ticket) override { outcome_->ticket = ticket; }
  void answer(int error) override { outcome_->set(error); }

 private:
  const std::shared_ptr<Outcome> outcome_;
};

struct Locks : testing::Test {
  static LockRequest flock_request(std::uint64_t handle, short type, bool waits) {
    LockRequest request;
    request.owner = request.handle = handle;
    request.process = static_cast<pid_t>(1000 + handle);
    request.type = type;
    request.waits = waits;
    request.tells_close = true;
    return request;
  }
  static LockRequest record_request(std::uint64_t owner, short type, off_t start, off_t length) {
    LockRequest request = flock_request(owner, type, true);
    request.is_record = true;
    request.start = start;
    request.length = length;
    return request;
  }
  std::shared_ptr<Outcome> ask(LockTable& table, const LockFileId& id, const LockRequest& request) {
    auto outcome = std::make_shared<Outcome>();
    table.lock(
        id, [this] { return sys::open_path(path, O_PATH); }, request,
        std::make_unique<Call>(outcome));
    return outcome;
  }
  // The lock file as another process of this machine has it.
  UniqueFd raw() { return *sys::open_path(path, O_RDWR); }

  Scratch scratch;
  const std::string path = scratch / "x.lock";
  const UniqueFd made = *sys::open_path(path, O_RDWR | O_CREAT, 0666);
  const struct stat st = *sys::stat_fd(made.get());
  const LockFileId shared{st.st_dev, st.st_ino};
  const LockFileId own{0, 7};
  Counters counters;
};

TEST_F(Locks, RawHoldersAndOursExcludeEachOther) {
  LockTable table(counters);
  const UniqueFd other = raw();
  EXPECT_EQ(ask(table, shared, flock_request(1, F_WRLCK, false))->now(), 0);
  EXPECT_TRUE(sys::lock_file(other.get(), LOCK_EX | LOCK_NB).failed_with(EWOULDBLOCK));
  table.released(shared, 1);
  EXPECT_TRUE(sys::lock_file(other.get(), LOCK_EX | LOCK_NB));
  EXPECT_EQ(ask(table, shared, flock_request(2, F_WRLCK, false))->wait(), EAGAIN);
}

TEST_F(Locks, AWaiterGetsALockThatARawHolderReleases) {
  LockTable table(counters);
  UniqueFd other = raw();
  ASSERT_TRUE(sys::lock_file(other.get(), LOCK_EX));
  const auto waiter = ask(table, shared, flock_request(1, F_WRLCK, true));
  EXPECT_EQ(waiter->now(), -1);
  other.reset();
  EXPECT_EQ(waiter->wait(), 0);
}

TEST_F(Locks, AWaiterBehindOneOfOursIsLeftAloneWhenRawOnesComeBetween) {
  LockTable table(counters);
  ASSERT_EQ(ask(table, shared, flock_request(1, F_RDLCK, true))->now(), 0);
  UniqueFd other = raw();
  ASSERT_TRUE(sys::lock_file(other.get(), LOCK_SH));
  const auto waiter = ask(table, shared, flock_request(2, F_WRLCK, true));
  table.released(shared, 1);
  EXPECT_EQ(waiter->now(), -1);
  other.reset();
  EXPECT_EQ(waiter->wait(), 0);
}

// As the daemon does to ask its own mount.
TEST_F(Locks, AReleasedLockIsFreeThoughAForkedProcessHasACopyOfItsDescriptor) {
  LockTable table(counters);
  const LockRequest records = record_request(3, F_WRLCK, 0, 10);
  ASSERT_EQ(ask(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  ASSERT_EQ(ask(table, own, records)->now(), 0);
  const auto waiter = ask(table, own, flock_request(2, F_WRLCK, true));
  const auto record_waiter = ask(table, own, record_request(4, F_WRLCK, 5, 10));
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
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, flock_request(1, F_RDLCK, true))->now(), 0);
  const auto writer = ask(table, own, flock_request(2, F_WRLCK, true));
  const auto reader = ask(table, own, flock_request(3, F_RDLCK, true));
  EXPECT_EQ(reader->now(), -1);
  table.interrupt(writer->ticket);
  EXPECT_EQ(writer->wait(), EINTR);
  EXPECT_EQ(reader->wait(), 0);
  table.interrupt(writer->ticket);  // late: it concerns nobody
  EXPECT_EQ(ask(table, own, flock_request(4, F_RDLCK, true))->now(), 0);
}

// An interrupt that had come before the request waits: libfuse tells of it from within.
TEST_F(Locks, AnInterruptFromWithinWaitIsHeeded) {
  class Interrupted final : public LockCall {
   public:
    Interrupted(LockTable& table, std::shared_ptr<Outcome> outcome)
        : table_(table), outcome_(std::move(outcome)) {}
    void wait(std::uint64_t ticket) override { table_.interrupt(ticket); }
    void answer(int error) override { outcome_->set(error); }

   private:
    LockTable& table_;
    const std::shared_ptr<Outcome> outcome_;
  };
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  auto outcome = std::make_shared<Outcome>();
  table.lock(own, {}, flock_request(2, F_WRLCK, true),
             std::make_unique<Interrupted>(table, outcome));
  EXPECT_EQ(outcome->wait(), EINTR);
}

// For a few milliseconds: a busy machine may take them all from one try.
TEST_F(Locks, ANonblockingRequestWaitsForAHandleThatIsBeingClosed) {
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  std::uint64_t holder = 1;
  for (int outcome = EAGAIN; outcome != 0; ++holder) {
    ASSERT_LE(holder, 20U) << "nobody was ever waited for";
    EXPECT_EQ(ask(table, own, flock_request(holder + 1, F_WRLCK, false))->now(), EAGAIN);
    table.closed(own, holder, 99);
    const auto next = ask(table, own, flock_request(holder + 1, F_WRLCK, false));
    table.released(own, holder);
    outcome = next->wait();
    if (outcome == 0) continue;
    ASSERT_EQ(outcome, EAGAIN);
    ASSERT_EQ(ask(table, own, flock_request(holder + 1, F_WRLCK, true))->now(), 0);
  }
  table.closed(own, holder, 99);
  EXPECT_EQ(ask(table, own, flock_request(holder + 1, F_WRLCK, false))->wait(),
            EAGAIN);  // a duplicate lives on
}

TEST_F(Locks, AWithdrawnRequestBlocksNoOther) {
  LockTable table(counters);
  LockRequest shared_request = flock_request(1, F_RDLCK, true);
  shared_request.tells_close = false;
  ASSERT_EQ(ask(table, own, shared_request)->now(), 0);
  const auto gives_up = ask(table, own, flock_request(2, F_WRLCK, false));
  const auto behind = ask(table, own, flock_request(3, F_RDLCK, true));
  EXPECT_EQ(gives_up->wait(), EAGAIN);
  EXPECT_EQ(behind->wait(), 0);
}

TEST_F(Locks, LocksAndWaitersMoveToTheFileThatTheJobsFileBecomes) {
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  ASSERT_EQ(ask(table, own, record_request(2, F_WRLCK, 5, 1))->now(), 0);
  const auto waiter = ask(table, own, flock_request(3, F_WRLCK, true));
  table.move(own, shared, [this] { return sys::open_path(path, O_PATH); });
  const UniqueFd other = raw();
  EXPECT_TRUE(sys::lock_file(other.get(), LOCK_EX | LOCK_NB).failed_with(EWOULDBLOCK));
  struct flock range {};
  range.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(other.get(), F_GETLK, &range), 0);
  EXPECT_EQ(range.l_start, 5);
  EXPECT_EQ(ask(table, shared, flock_request(4, F_RDLCK, false))->wait(), EAGAIN);
  EXPECT_EQ(waiter->now(), -1);
  table.released(shared, 1);
  EXPECT_EQ(waiter->wait(), 0);
  table.released(shared, 2);
  table.released(shared, 4);
  table.released(own, 3);  // by either id
  EXPECT_TRUE(sys::lock_file(other.get(), LOCK_EX | LOCK_NB));
  EXPECT_FALSE(table.is_in_use(own) || table.is_in_use(shared));
}

TEST_F(Locks, RecordLocksOfAProcessThatIsGoneAreNoObstacle) {
  LockSystem system = LockSystem::real();
  bool alive = true;
  system.has_ended = [&](pid_t process) { return process == 1001 && !alive; };
  LockTable table(counters, system);
  LockRequest quiet = record_request(1, F_WRLCK, 0, 0);
  quiet.tells_close = false;
  ASSERT_EQ(ask(table, own, quiet)->now(), 0);
  LockRequest other = record_request(2, F_WRLCK, 0, 1);
  const auto waiter = ask(table, own, other);
  EXPECT_EQ(waiter->now(), -1);
  alive = false;
  EXPECT_EQ(waiter->wait(), 0);
}

// Process 1001 locks bytes from 1 on and dies, and no event reports that.
struct LocksOfADeadHolder : Locks {
  LocksOfADeadHolder() {
    LockRequest quiet = record_request(1, F_WRLCK, 1, 0);
    quiet.tells_close = false;
    EXPECT_EQ(ask(table, own, quiet)->now(), 0);
  }
  LockSystem system() {
    LockSystem system = LockSystem::real();
    system.has_ended = [this](pid_t process) {
      return is_dead && (process == 1001 || process == 1005);
    };
    system.has_keeper = false;
    return system;
  }

  bool is_dead = false;
  LockTable table{counters, system()};
};

TEST_F(LocksOfADeadHolder, AWaiterGetsThemWhenAnotherRequestFindsTheHolderDead) {
  const auto waiter = ask(table, own, record_request(2, F_RDLCK, 1, 1));
  EXPECT_EQ(waiter->now(), -1);
  is_dead = true;
  EXPECT_EQ(ask(table, own, record_request(3, F_RDLCK, 5, 1))->now(), 0);
  EXPECT_EQ(waiter->now(), 0);
}

TEST_F(LocksOfADeadHolder, AWaiterGetsThemWhenFGetlkFindsTheHolderDead) {
  const auto waiter = ask(table, own, record_request(2, F_RDLCK, 1, 1));
  is_dead = true;
  struct flock found {};
  EXPECT_EQ(table.find(own, {}, record_request(3, F_RDLCK, 5, 1), found), 0);
  EXPECT_EQ(found.l_type, F_UNLCK);
  EXPECT_EQ(waiter->now(), 0);
}

TEST_F(LocksOfADeadHolder, AWaiterGetsThemThoughTheOtherRequestHasToWait) {
  ASSERT_EQ(ask(table, own, record_request(4, F_WRLCK, 0, 1))->now(), 0);
  const auto waiter = ask(table, own, record_request(2, F_RDLCK, 1, 1));
  is_dead = true;
  EXPECT_EQ(ask(table, own, record_request(3, F_RDLCK, 0, 0))->now(), -1);
  EXPECT_EQ(waiter->now(), 0);
}

// The waiter that gets its lock weakens the one that the other request would wait for.
TEST_F(LocksOfADeadHolder, TheRequestThatFindsTheHolderDeadIsTriedAgain) {
  ASSERT_EQ(ask(table, own, record_request(4, F_WRLCK, 0, 1))->now(), 0);
  const auto waiter = ask(table, own, record_request(4, F_RDLCK, 0, 0));
  EXPECT_EQ(waiter->now(), -1);
  is_dead = true;
  EXPECT_EQ(ask(table, own, record_request(3, F_RDLCK, 0, 0))->now(), 0);
  EXPECT_EQ(waiter->now(), 0);
}

// The two holders have died. The drop of one has the waiter tried, which has the asker's own dropped.
TEST_F(LocksOfADeadHolder, FGetlkByAnOwnerThatLosesItsLocksMeanwhile) {
  LockRequest quiet = record_request(5, F_WRLCK, 0, 1);
  quiet.tells_close = false;
  ASSERT_EQ(ask(table, own, quiet)->now(), 0);
  const auto waiter = ask(table, own, record_request(2, F_WRLCK, 0, 0));
  EXPECT_EQ(waiter->now(), -1);
  is_dead = true;
  struct flock found {};
  EXPECT_EQ(table.find(own, {}, record_request(1, F_WRLCK, 0, 1), found), 0);
  EXPECT_EQ(waiter->now(), 0);
  EXPECT_EQ(found.l_type, F_WRLCK);
  EXPECT_EQ(found.l_pid, 1002);
}

// The request is tried again after a waiter has weakened its lock, and weakens a lock itself.
TEST_F(LocksOfADeadHolder, AWaiterGetsALockThatARepeatedRequestWeakens) {
  LockTable others{counters, system()};
  LockRequest quiet = record_request(1, F_WRLCK, 15, 5);
  quiet.tells_close = false;
  ASSERT_EQ(ask(others, own, quiet)->now(), 0);
  ASSERT_EQ(ask(others, own, record_request(3, F_WRLCK, 0, 10))->now(), 0);
  ASSERT_EQ(ask(others, own, record_request(4, F_WRLCK, 10, 5))->now(), 0);
  const auto weakens = ask(others, own, record_request(4, F_RDLCK, 10, 10));
  const auto reader = ask(others, own, record_request(2, F_RDLCK, 0, 5));
  EXPECT_EQ(weakens->now(), -1);
  EXPECT_EQ(reader->now(), -1);
  is_dead = true;
  EXPECT_EQ(ask(others, own, record_request(3, F_RDLCK, 0, 20))->now(), 0);
  EXPECT_EQ(weakens->now(), 0);
  EXPECT_EQ(reader->now(), 0);
}

// The first request in the queue waits for a lock that the second one, once granted, weakens.
TEST_F(Locks, AWaiterGetsALockThatALaterOneWeakens) {
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, record_request(1, F_WRLCK, 0, 1))->now(), 0);
  ASSERT_EQ(ask(table, own, record_request(2, F_WRLCK, 5, 1))->now(), 0);
  const auto reader = ask(table, own, record_request(3, F_RDLCK, 5, 1));
  const auto weakens = ask(table, own, record_request(2, F_RDLCK, 0, 10));
  EXPECT_EQ(reader->now(), -1);
  EXPECT_EQ(weakens->now(), -1);
  ASSERT_EQ(ask(table, own, record_request(1, F_UNLCK, 0, 1))->now(), 0);
  EXPECT_EQ(weakens->now(), 0);
  EXPECT_EQ(reader->now(), 0);
}

TEST_F(Locks, RecordLocksWaitForTheirOwnBytesAlone) {
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, record_request(1, F_WRLCK, 0, 10))->now(), 0);
  ASSERT_EQ(ask(table, own, record_request(2, F_WRLCK, 20, 10))->now(), 0);
  const auto low = ask(table, own, record_request(3, F_WRLCK, 5, 1));
  const auto high = ask(table, own, record_request(4, F_WRLCK, 25, 1));
  EXPECT_EQ(low->now(), -1);
  EXPECT_EQ(high->now(), -1);
  ASSERT_EQ(ask(table, own, record_request(2, F_UNLCK, 20, 10))->now(), 0);
  EXPECT_EQ(high->wait(), 0);
  EXPECT_EQ(low->now(), -1);
  table.closed(own, 1, 1);  // the process closed one of its descriptors
  EXPECT_EQ(low->wait(), 0);
}

TEST_F(Locks, FindNamesTheProcessInTheWay) {
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, record_request(1, F_RDLCK, 0, 10))->now(), 0);
  ASSERT_EQ(ask(table, own, record_request(2, F_WRLCK, 20, 10))->now(), 0);
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
    LockTable table(counters, system);
    EXPECT_FALSE(table.is_local_only());
    EXPECT_EQ(ask(table, shared, flock_request(1, F_WRLCK, true))->now(), 0) << error;
    EXPECT_TRUE(table.is_local_only());
    EXPECT_EQ(ask(table, shared, flock_request(2, F_WRLCK, false))->now(), EAGAIN);
    const auto waiter = ask(table, shared, flock_request(3, F_WRLCK, true));
    table.released(shared, 1);
    EXPECT_EQ(waiter->wait(), 0);
  }
}

// What a system that is short of locks says later on must not let two in.
TEST_F(Locks, AShortageOfLocksIsAnError) {
  LockSystem system = LockSystem::real();
  const LockSystem real = LockSystem::real();
  std::atomic<bool> is_short{false};
  system.set = [&](int fd, const LockRequest& request) {
    return is_short ? ENOLCK : real.set(fd, request);
  };
  LockTable table(counters, system);
  ASSERT_EQ(ask(table, shared, flock_request(1, F_RDLCK, true))->now(), 0);
  table.released(shared, 1);
  is_short = true;
  EXPECT_EQ(ask(table, shared, flock_request(2, F_WRLCK, true))->now(), ENOLCK);
  EXPECT_FALSE(table.is_local_only());
}

TEST_F(Locks, ClosingFailsWaitingAndLaterRequests) {
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  const auto waiter = ask(table, own, flock_request(2, F_WRLCK, true));
  table.close().give();
  EXPECT_EQ(waiter->wait(), ENOLCK);
  EXPECT_EQ(ask(table, own, flock_request(3, F_WRLCK, true))->now(), ENOLCK);
  EXPECT_EQ(ask(table, own, flock_request(1, F_UNLCK, true))->now(), 0);
}

// The caller holds a lock while it closes the table, and gives the replies without it.
TEST_F(Locks, ClosingReturnsTheRepliesAndGivesNone) {
  LockTable table(counters);
  ASSERT_EQ(ask(table, own, flock_request(1, F_WRLCK, true))->now(), 0);
  const auto waiter = ask(table, own, flock_request(2, F_WRLCK, true));
  PendingReplies replies = table.close();
  EXPECT_EQ(waiter->now(), -1);
  replies.give();
  EXPECT_EQ(waiter->now(), ENOLCK);
}

// What the hook uses may be destroyed then.
TEST_F(Locks, AStoppedTableCallsItsIdleHookNoMore) {
  LockTable table(counters);
  std::atomic<int> calls{0};
  table.set_idle_hook([&](const LockFileId&) { return ++calls == 0; });
  table.watch_idle(shared);
  while (calls == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  table.stop();
  const int calls_at_stop = calls;
  table.watch_idle(shared);
  // A table that is not stopped calls it twice in this time.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(calls, calls_at_stop);
  table.stop();
}

TEST_F(Locks, ManyThreadsExcludeEachOther) {
  LockTable table(counters);
  int inside = 0;  // guarded by the lock under test: ThreadSanitizer sees where it fails
  std::vector<std::thread> threads;
  for (std::uint64_t handle = 1; handle <= 8; ++handle) {
    threads.emplace_back([&, handle] {
      for (int round = 0; round < 200; ++round) {
        if (ask(table, own, flock_request(handle, F_WRLCK, true))->wait() != 0) ADD_FAILURE();
        if (++inside != 1) ADD_FAILURE();
        --inside;
        if (round % 2 == 0) {
          (void)ask(table, own, flock_request(handle, F_UNLCK, true));
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
  EXPECT_TRUE(is_locked_elsewhere(kTable, device, 11, 100));  // another one waits
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
  const pid_t maker = ::fork();
  if (maker == 0) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    (void)!::write(ends[1], &child, sizeof child);
    for (;;) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  const ProcessOrigin origin = origin_of(maker);
  EXPECT_EQ(origin.process, maker);
  ASSERT_FALSE(origin.ancestors.empty());
  EXPECT_EQ(origin.ancestors.front(), ::getpid());
  EXPECT_TRUE(is_alive(origin));
  (void)::kill(maker, SIGKILL);
  ASSERT_EQ(::waitpid(maker, nullptr, 0), maker);
  EXPECT_FALSE(is_alive(origin));
  const auto found = possible_descendants(origin);
  EXPECT_NE(std::find(found.begin(), found.end(), child), found.end());
  EXPECT_EQ(std::find(found.begin(), found.end(), ::getpid()), found.end());  // older than it
  (void)::kill(child, SIGKILL);
  (void)::close(ends[0]);
  (void)::close(ends[1]);
}

}  // namespace
}  // namespace cacheshim
