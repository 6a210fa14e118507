// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "store/threads/mutex.h"

// Tests the check of the lock order. This program is always built with the check, other programs only
// with -Dlock_ranks=true.
#ifndef CACHESHIM_LOCK_RANKS
#error "build this test with -DCACHESHIM_LOCK_RANKS"
#endif

namespace cacheshim {
namespace {

struct LockRanks : testing::Test {
  SharedMutex overlay{LockRank::kOverlay};
  SharedMutex nodes{LockRank::kNodeTable};
  Mutex job{LockRank::kJobViews};
  Mutex leaf;
  Mutex other_leaf;
};
using LockRanksDeathTest = LockRanks;

TEST_F(LockRanks, LocksInOrderAreTaken) {
  const ReaderLock outer(overlay);
  const MutexLock middle(job);
  const WriterLock inner(nodes);
  const MutexLock last(leaf);
}

TEST_F(LockRanksDeathTest, AnOuterLockUnderAnInnerOneAborts) {
  const MutexLock lock(job);
  EXPECT_DEATH(overlay.lock(),
               "lock order: must not take Overlay; the thread holds: \\[JobViews\\]");
}

TEST_F(LockRanksDeathTest, ASharedLockOutOfOrderAborts) {
  const ReaderLock lock(nodes);
  EXPECT_DEATH(overlay.lock_shared(), "must not take Overlay; the thread holds: \\[NodeTable\\]");
}

TEST_F(LockRanksDeathTest, TwoLocksOfOneRankAbort) {
  const MutexLock lock(leaf);
  EXPECT_DEATH(other_leaf.lock(), "must not take a leaf");
}

TEST_F(LockRanksDeathTest, TheSameLockTwiceAborts) {
  const ReaderLock lock(overlay);
  EXPECT_DEATH(overlay.lock_shared(), "must not take Overlay");
}

TEST_F(LockRanks, AReleasedLockDoesNotCount) {
  auto outer = std::make_unique<WriterLock>(overlay);
  ReleasableMutexLock inner(job);
  outer.reset();
  inner.unlock();
  const ReaderLock again(overlay);
  inner.lock();
}

TEST_F(LockRanksDeathTest, ALockThatIsTakenAgainCounts) {
  ReleasableMutexLock lock(job);
  lock.unlock();
  lock.lock();
  EXPECT_DEATH(overlay.lock(), "must not take Overlay");
}

TEST_F(LockRanks, AnotherThreadsLocksDoNotCount) {
  const MutexLock lock(job);
  std::thread([this] { const WriterLock outer(overlay); }).join();
}

TEST_F(LockRanks, TryingALockOutOfOrderIsAllowed) {
  const MutexLock lock(job);
  ASSERT_TRUE(overlay.try_lock());
  overlay.unlock();
}

TEST_F(LockRanksDeathTest, ALockIsHeldDuringAWait) {
  CondVar never;
  const MutexLock lock(job);
  (void)never.wait_for(job, std::chrono::milliseconds(1));
  EXPECT_DEATH(overlay.lock(), "must not take Overlay; the thread holds: \\[JobViews\\]");
}

TEST_F(LockRanksDeathTest, AssertingALockThatIsNotHeldAborts) {
  {
    const MutexLock lock(job);
    job.assert_held();
  }
  EXPECT_DEATH(job.assert_held(), "must hold JobViews; the thread holds: \\(see");
}

TEST_F(LockRanksDeathTest, AReplyUnderALockAborts) {
  require_no_lock();
  const MutexLock lock(job);
  EXPECT_DEATH(require_no_lock(),
               "must not hold a lock across a reply; the thread holds: \\[JobViews\\]");
}

}  // namespace
}  // namespace cacheshim
