// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/unit/fuse/lock_requests_fixture.h"

// Tests requests that wait for the locks of a holder that has died, if the kernel has sent the daemon no event (no
// FLUSH, no RELEASE).
namespace cacheshim {
namespace {

// Process 1001 locks the bytes from 1 to the end. Processes 1001 and 1005 die without an event when
// the test sets is_dead.
struct LocksOfADeadHolder : Locks {
  LocksOfADeadHolder() {
    LockRequest quiet = record_request(1, F_WRLCK, 1, 0);
    quiet.reports_close = false;
    EXPECT_EQ(send(table, own, quiet)->now(), 0);
  }
  LockSystem system() {
    LockSystem system = LockSystem::real();
    system.has_ended = [this](pid_t process) {
      return is_dead && (process == 1001 || process == 1005);
    };
    return system;
  }

  bool is_dead = false;
  EventLoop resting;  // not started, so that only requests detect that the holder is dead
  LockTable table{counters, resting, system()};
};

TEST_F(LocksOfADeadHolder, AWaiterGetsTheLocksWhenAnotherRequestDetectsTheDeath) {
  const auto waiter = send(table, own, record_request(2, F_RDLCK, 1, 1));
  EXPECT_EQ(waiter->now(), -1);
  is_dead = true;
  EXPECT_EQ(send(table, own, record_request(3, F_RDLCK, 5, 1))->now(), 0);
  EXPECT_EQ(waiter->now(), 0);
}

TEST_F(LocksOfADeadHolder, AWaiterGetsTheLocksWhenFGetlkFindsTheHolderDead) {
  const auto waiter = send(table, own, record_request(2, F_RDLCK, 1, 1));
  is_dead = true;
  struct flock found {};
  EXPECT_EQ(table.find(own, {}, record_request(3, F_RDLCK, 5, 1), found), 0);
  EXPECT_EQ(found.l_type, F_UNLCK);
  EXPECT_EQ(waiter->now(), 0);
}

TEST_F(LocksOfADeadHolder, AWaiterGetsTheLocksAlthoughTheOtherRequestHasToWait) {
  ASSERT_EQ(send(table, own, record_request(4, F_WRLCK, 0, 1))->now(), 0);
  const auto waiter = send(table, own, record_request(2, F_RDLCK, 1, 1));
  is_dead = true;
  EXPECT_EQ(send(table, own, record_request(3, F_RDLCK, 0, 0))->now(), -1);
  EXPECT_EQ(waiter->now(), 0);
}

// The waiter's own request changes its write lock on byte 0 to a read lock. So the other request,
// which needs byte 0, no longer has to wait.
TEST_F(LocksOfADeadHolder, TheRequestThatFindsTheHolderDeadIsTriedAgain) {
  ASSERT_EQ(send(table, own, record_request(4, F_WRLCK, 0, 1))->now(), 0);
  const auto waiter = send(table, own, record_request(4, F_RDLCK, 0, 0));
  EXPECT_EQ(waiter->now(), -1);
  is_dead = true;
  EXPECT_EQ(send(table, own, record_request(3, F_RDLCK, 0, 0))->now(), 0);
  EXPECT_EQ(waiter->now(), 0);
}

// Process 1001 sends F_GETLK although it counts as dead, like process 1005:
//  1. F_GETLK conflicts with a lock of 1005. The table drops the locks of 1005.
//  2. The table therefore tries the waiter's request again. This attempt drops the locks of 1001
//     while the table still handles the F_GETLK of 1001.
TEST_F(LocksOfADeadHolder, FGetlkByAnOwnerThatLosesItsLocksMeanwhile) {
  LockRequest quiet = record_request(5, F_WRLCK, 0, 1);
  quiet.reports_close = false;
  ASSERT_EQ(send(table, own, quiet)->now(), 0);
  const auto waiter = send(table, own, record_request(2, F_WRLCK, 0, 0));
  EXPECT_EQ(waiter->now(), -1);
  is_dead = true;
  struct flock found {};
  EXPECT_EQ(table.find(own, {}, record_request(1, F_WRLCK, 0, 1), found), 0);
  EXPECT_EQ(waiter->now(), 0);
  EXPECT_EQ(found.l_type, F_WRLCK);
  EXPECT_EQ(found.l_pid, 1002);
}

// The reader gets its lock in three steps:
//  1. A request of process 1003 finds process 1001 dead. The request also conflicts with a write
//     lock of 1004.
//  2. The table drops the locks of 1001. This grants a waiting request of 1004, which changes the
//     write lock of 1004 to a read lock.
//  3. The table tries the request of 1003 again and grants it. The request changes 1003's own write
//     lock, for which the reader waits, to a read lock.
TEST_F(LocksOfADeadHolder, AWaiterGetsALockThatARepeatedRequestWeakens) {
  LockTable others{counters, resting, system()};
  LockRequest quiet = record_request(1, F_WRLCK, 15, 5);
  quiet.reports_close = false;
  ASSERT_EQ(send(others, own, quiet)->now(), 0);
  ASSERT_EQ(send(others, own, record_request(3, F_WRLCK, 0, 10))->now(), 0);
  ASSERT_EQ(send(others, own, record_request(4, F_WRLCK, 10, 5))->now(), 0);
  const auto weakens = send(others, own, record_request(4, F_RDLCK, 10, 10));
  const auto reader = send(others, own, record_request(2, F_RDLCK, 0, 5));
  EXPECT_EQ(weakens->now(), -1);
  EXPECT_EQ(reader->now(), -1);
  is_dead = true;
  EXPECT_EQ(send(others, own, record_request(3, F_RDLCK, 0, 20))->now(), 0);
  EXPECT_EQ(weakens->now(), 0);
  EXPECT_EQ(reader->now(), 0);
}

}  // namespace
}  // namespace cacheshim
