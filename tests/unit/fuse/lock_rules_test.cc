// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tests/unit/fuse/lock_requests_fixture.h"

// Tests deadlocks among record locks, and the release of locks when a process closes a descriptor.
namespace cacheshim {
namespace {

struct LockRules : testing::Test {
  LockRules() { loop.start(); }

  static LockRequest request(std::uint64_t owner, off_t start, off_t length = 1,
                             short type = F_WRLCK) {
    LockRequest request;
    request.is_record = true;
    request.owner = request.handle = owner;
    request.process = static_cast<pid_t>(1000 + owner);
    request.type = type;
    request.start = start;
    request.length = length;
    request.waits = true;
    request.reports_close = true;
    return request;
  }
  std::shared_ptr<LockOutcome> send(std::uint64_t file, const LockRequest& request) {
    auto outcome = std::make_shared<LockOutcome>();
    const auto none = []() -> Result<UniqueFd> { return Errno(EIO); };  // the files do not exist
    table.lock({0, file}, none, request, std::make_unique<TestLockReply>(outcome));
    return outcome;
  }
  // Sends F_SETLK for one byte. Returns the error of the reply.
  int try_lock(std::uint64_t owner, off_t start = 0) {
    LockRequest attempt = request(owner, start);
    attempt.waits = false;
    return send(1, attempt)->wait();
  }
  // Takes a lock on a file that has another open handle. When a process closes a descriptor of that handle, the kernel
  // does not notify the daemon.
  void lock_with_unseen_closes(std::uint64_t owner, off_t length = 1, short type = F_WRLCK) {
    LockRequest quiet = request(owner, 0, length, type);
    quiet.has_silent_handles = true;
    ASSERT_EQ(send(1, quiet)->wait(), 0);
  }

  static LockSystem real() { return LockSystem::real(); }
  std::unique_ptr<UserLimits> limits;  // used by the tests of limits; must outlive the table
  Counters counters;
  LockSystem system = real();
  LockCallKind kind = LockCallKind::kOfProcess;
  std::vector<OpenDescriptor> descriptors;
  std::atomic<bool> releasing{false};
  std::atomic<int> searches{0};  // searches of all descriptors of a process
  std::atomic<int> checks{0};    // checks of one descriptor
  EventLoop loop;
  LockTable table{counters, loop, [this] {
                    system.arguments = [this](pid_t) { return LockCallArguments{kind, 3}; };
                    system.is_releasing = [this] { return releasing.load(); };
                    system.descriptors = [this](pid_t, std::uint64_t, int) {
                      ++searches;
                      return descriptors;
                    };
                    system.has_descriptor = [this](pid_t process, const OpenDescriptor& one) {
                      ++checks;
                      return process != 0 && std::find(descriptors.begin(), descriptors.end(),
                                                       one) != descriptors.end();
                    };
                    return system;
                  }()};
};

// The kernel's request for F_GETLK contains no process.
TEST_F(LockRules, FGetlkByTheHolderKeepsItsLocks) {
  descriptors = {{3, 7, 1}};
  lock_with_unseen_closes(1);
  LockRequest search = request(1, 0);
  search.process = 0;
  struct flock found {};
  ASSERT_EQ(table.find({0, 1}, {}, search, found), 0);
  EXPECT_EQ(found.l_type, F_UNLCK);
  EXPECT_EQ(try_lock(2), EWOULDBLOCK);
  descriptors.clear();
  EXPECT_EQ(try_lock(2), 0);
}

TEST_F(LockRules, TheRequestThatClosesACycleOfTwoFilesGetsEdeadlk) {
  ASSERT_EQ(send(1, request(1, 0))->wait(), 0);
  ASSERT_EQ(send(2, request(2, 0))->wait(), 0);
  const auto first = send(2, request(1, 0));
  EXPECT_EQ(send(1, request(2, 0))->wait(), EDEADLK);
  EXPECT_EQ(first->now(), -1);
  ASSERT_EQ(send(2, request(2, 0, 1, F_UNLCK))->wait(), 0);
  EXPECT_EQ(first->wait(), 0);
}

TEST_F(LockRules, ACycleOfThreeProcessesOnOneFileIsFound) {
  for (std::uint64_t owner = 1; owner <= 3; ++owner) {
    ASSERT_EQ(send(7, request(owner, static_cast<off_t>(owner)))->wait(), 0);
  }
  const auto first = send(7, request(1, 2));
  const auto second = send(7, request(2, 3));
  EXPECT_EQ(send(7, request(3, 1))->wait(), EDEADLK);
  EXPECT_EQ(first->now(), -1);
  EXPECT_EQ(second->now(), -1);
}

// As with fcntl(2) on Linux 6.18, where a cycle of 13 processes waits forever (measured).
TEST_F(LockRules, ACycleOfTwelveProcessesIsFoundAndOneOfThirteenIsNot) {
  for (const std::uint64_t owners : {12U, 13U}) {
    const std::uint64_t file = owners;
    const auto of = [](std::uint64_t number) { return request(number, static_cast<off_t>(number)); };
    for (std::uint64_t owner = 1; owner <= owners; ++owner)
      ASSERT_EQ(send(file, of(owner))->wait(), 0);
    std::vector<std::shared_ptr<LockOutcome>> waiting;
    for (std::uint64_t owner = 1; owner < owners; ++owner) {
      waiting.push_back(send(file, request(owner, static_cast<off_t>(owner + 1))));
    }
    const auto last = send(file, request(owners, 1));
    EXPECT_EQ(last->now(), owners == 12 ? EDEADLK : -1);
    for (const auto& one : waiting) EXPECT_EQ(one->now(), -1);
    for (std::uint64_t owner = owners; owner >= 1; --owner) {
      ASSERT_EQ(send(file, request(owner, 0, 100, F_UNLCK))->wait(), 0);
    }
  }
}

TEST_F(LockRules, ALongChainWithoutACycleWaits) {
  constexpr std::uint64_t kOwners = 40;
  for (std::uint64_t owner = 1; owner <= kOwners; ++owner) {
    ASSERT_EQ(send(owner, request(owner, 0))->wait(), 0);
  }
  std::vector<std::shared_ptr<LockOutcome>> waiting;
  for (std::uint64_t owner = kOwners; owner > 1; --owner) {
    waiting.push_back(send(owner - 1, request(owner, 0)));
  }
  for (const auto& one : waiting) EXPECT_EQ(one->now(), -1);
}

// As on a local file system, requests for OFD locks wait instead of failing with EDEADLK, because
// another thread or process may release an OFD lock.
TEST_F(LockRules, LocksOfOpenFileDescriptionsWait) {
  kind = LockCallKind::kOfDescription;
  ASSERT_EQ(send(1, request(1, 0))->wait(), 0);
  ASSERT_EQ(send(1, request(2, 1))->wait(), 0);
  const auto first = send(1, request(1, 1));
  const auto second = send(1, request(2, 0));
  EXPECT_EQ(first->now(), -1);
  EXPECT_EQ(second->now(), -1);
}

TEST_F(LockRules, UnlockedBytesCloseNoCycle) {
  ASSERT_EQ(send(1, request(1, 0, 0))->wait(), 0);
  ASSERT_EQ(send(1, request(1, 10, 10, F_UNLCK))->wait(), 0);
  ASSERT_EQ(send(1, request(2, 10, 5))->wait(), 0);
  ASSERT_EQ(send(1, request(3, 15, 5))->wait(), 0);
  const auto first = send(1, request(1, 10, 5));  // waits for process 2
  // Waits for process 3, but not for process 1, which has released bytes 10 to 19.
  const auto second = send(1, request(2, 15, 5));
  EXPECT_EQ(first->now(), -1);
  EXPECT_EQ(second->now(), -1);
  ASSERT_EQ(send(1, request(3, 0, 0, F_UNLCK))->wait(), 0);
  EXPECT_EQ(second->wait(), 0);
}

TEST_F(LockRules, AnUnreportedCloseReleasesTheLocks) {
  descriptors = {{3, 9, 1}, {4, 9, 1}};
  lock_with_unseen_closes(1);
  EXPECT_EQ(try_lock(2), EAGAIN);
  const auto waiter = send(1, request(3, 0));
  EXPECT_EQ(waiter->now(), -1);
  descriptors.pop_back();
  EXPECT_EQ(waiter->wait(), 0);
}

// Processes poll for locks, so the cost of a refused request must not grow with the number of the
// holder's descriptors.
TEST_F(LockRules, ARefusedRequestChecksFewOfTheHoldersDescriptors) {
  for (int number = 0; number < 1000; ++number) descriptors.push_back({number, 9, 1});
  lock_with_unseen_closes(1);
  const int checks_before = checks;
  EXPECT_EQ(try_lock(2), EAGAIN);
  EXPECT_LE(checks - checks_before, static_cast<int>(LockOwners::kMostChecks));
  EXPECT_EQ(searches, 1);  // the search was made when the lock was taken
}

TEST_F(LockRules, ARefusedRequestChecksOneOfManyHolders) {
  descriptors = {{3, 9, 1}};
  for (std::uint64_t owner = 1; owner <= 100; ++owner) {
    lock_with_unseen_closes(owner, 1, F_RDLCK);
  }
  const int checks_before = checks;
  EXPECT_EQ(try_lock(200), EAGAIN);
  EXPECT_LE(checks - checks_before, static_cast<int>(LockOwners::kMostChecks));
}

TEST_F(LockRules, ACloseAmongManyDescriptorsIsFoundByRepeatedRequests) {
  constexpr int kDescriptors = 1000;
  for (int number = 0; number < kDescriptors; ++number) descriptors.push_back({number, 9, 1});
  lock_with_unseen_closes(1);
  descriptors.pop_back();
  int error = EAGAIN;
  for (int attempts = 0; error == EAGAIN && attempts <= kDescriptors; ++attempts)
    error = try_lock(2);
  EXPECT_EQ(error, 0);
}

// The holder's close(2) returns before the daemon receives RELEASE, so the lock may become free
// within milliseconds.
TEST_F(LockRules, ARequestWaitsBrieflyForAHolderThatMayHaveClosed) {
  LockRequest quiet = request(1, 0);
  quiet.is_record = quiet.reports_close = false;
  ASSERT_EQ(send(1, quiet)->wait(), 0);
  LockRequest other = request(2, 0);
  other.is_record = other.waits = false;
  EXPECT_EQ(send(1, other)->now(), EAGAIN);
  releasing = true;
  const auto outcome = send(1, other);
  EXPECT_EQ(outcome->now(), -1);
  table.released({0, 1}, 1);
  EXPECT_EQ(outcome->wait(), 0);
}

TEST_F(LockRules, ADescriptionKeepsItsLocksWhenAnotherDescriptorIsClosed) {
  kind = LockCallKind::kOfDescription;
  descriptors = {{3, 9, 1}, {4, 9, 1}};
  lock_with_unseen_closes(1);
  descriptors.pop_back();
  EXPECT_EQ(try_lock(2), EAGAIN);
}

TEST_F(LockRules, ALockThatIsTakenAfterTheCloseStays) {
  descriptors = {{3, 9, 1}, {4, 9, 1}};
  lock_with_unseen_closes(1);
  descriptors.pop_back();
  LockRequest next = request(1, 5);
  ASSERT_EQ(send(1, next)->wait(), 0);
  EXPECT_EQ(try_lock(2), 0);
  EXPECT_EQ(try_lock(2, 5), EAGAIN);
}

// ---- Limits of a user

struct LockLimits : LockRules {
  LockLimits() {
    value_of(most, Limit::kLocks) = 3;
    value_of(most, Limit::kWaiters) = 1;
    value_of(most, Limit::kHandles) = 8;  // enough for four owners: each uses two
    limits = std::make_unique<UserLimits>(UserLimits::Options{.most = most});
    account = &limits->account(1000);
  }
  std::shared_ptr<LockOutcome> send_as_user(const LockRequest& wanted, std::uint64_t file = 1) {
    LockRequest paid = wanted;
    paid.account = account;
    return send(file, paid);
  }
  std::uint64_t used(Limit limit) const { return account->used(limit); }

  LimitValues most{};
  UserAccount* account = nullptr;
};

TEST_F(LockLimits, FurtherLocksFailAndReleasedOnesAreGivenBack) {
  for (off_t start : {0, 10, 20}) ASSERT_EQ(send_as_user(request(1, start))->wait(), 0);
  EXPECT_EQ(send_as_user(request(1, 30))->wait(), ENOLCK);
  EXPECT_EQ(send(1, request(2, 30))->wait(), 0);  // not charged to this user
  LockRequest unlock = request(1, 0, 0, F_UNLCK);
  ASSERT_EQ(send_as_user(unlock)->wait(), 0);
  EXPECT_EQ(used(Limit::kLocks), 0U);
  EXPECT_EQ(send_as_user(request(1, 40))->wait(), 0);
  table.closed({0, 1}, 1, 1);
  EXPECT_EQ(used(Limit::kLocks), 0U);
  EXPECT_EQ(used(Limit::kHandles), 0U);
}

TEST_F(LockLimits, AdjacentLocksCountAsOneAndARefusedRequestAsNone) {
  for (off_t start = 0; start < 10; ++start) ASSERT_EQ(send_as_user(request(1, start))->wait(), 0);
  EXPECT_EQ(used(Limit::kLocks), 1U);
  LockRequest attempt = request(2, 5);
  attempt.waits = false;
  EXPECT_EQ(send_as_user(attempt)->wait(), EAGAIN);
  EXPECT_EQ(used(Limit::kLocks), 1U);
}

TEST_F(LockLimits, AnUnlockThatSplitsALockNeedsRoom) {
  ASSERT_EQ(send_as_user(request(1, 0, 100))->wait(), 0);
  ASSERT_EQ(send_as_user(request(1, 10, 1, F_UNLCK))->wait(), 0);
  ASSERT_EQ(send_as_user(request(1, 20, 1, F_UNLCK))->wait(), 0);
  EXPECT_EQ(send_as_user(request(1, 30, 1, F_UNLCK))->wait(), ENOLCK);
  EXPECT_EQ(send_as_user(request(1, 0, 15, F_UNLCK))->wait(), 0);
  EXPECT_EQ(used(Limit::kLocks), 2U);
}

TEST_F(LockLimits, FurtherOwnersAndWaitersFail) {
  ASSERT_EQ(send(1, request(9, 0))->wait(), 0);
  const auto waiting = send_as_user(request(1, 0));
  EXPECT_EQ(waiting->now(), -1);
  EXPECT_EQ(send_as_user(request(2, 0))->wait(), ENOLCK);
  LockRequest attempt = request(2, 0);
  attempt.waits = false;
  EXPECT_EQ(send_as_user(attempt)->wait(), EAGAIN);
  EXPECT_EQ(send_as_user(request(3, 50))->wait(), 0);
  EXPECT_EQ(send_as_user(request(4, 60))->wait(), 0);
  EXPECT_EQ(send_as_user(request(5, 70))->wait(), ENOLCK);  // owners 1 to 4 have eight descriptors
  table.closed({0, 1}, 9, 9);
  EXPECT_EQ(waiting->wait(), 0);
  EXPECT_EQ(used(Limit::kWaiters), 0U);
}

}  // namespace
}  // namespace cacheshim
