// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/unit/fuse/lock_requests_fixture.h"

// Tests locks that remain when their holder dies without an event, and the requests that wait for
// them.
namespace cacheshim {
namespace {

// Process 1001 locks the bytes from 1 on and dies without an event.
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
    return system;
  }

  bool is_dead = false;
  EventLoop resting;  // not started, so that only requests find the holder dead
  LockTable table{counters, resting, system()};
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

TEST_F(LocksOfADeadHolder, AWaiterGetsThemAlthoughTheOtherRequestHasToWait) {
  ASSERT_EQ(ask(table, own, record_request(4, F_WRLCK, 0, 1))->now(), 0);
  const auto waiter = ask(table, own, record_request(2, F_RDLCK, 1, 1));
  is_dead = true;
  EXPECT_EQ(ask(table, own, record_request(3, F_RDLCK, 0, 0))->now(), -1);
  EXPECT_EQ(waiter->now(), 0);
}

// The waiter that gets its lock weakens the lock for which the other request would wait.
TEST_F(LocksOfADeadHolder, TheRequestThatFindsTheHolderDeadIsTriedAgain) {
  ASSERT_EQ(ask(table, own, record_request(4, F_WRLCK, 0, 1))->now(), 0);
  const auto waiter = ask(table, own, record_request(4, F_RDLCK, 0, 0));
  EXPECT_EQ(waiter->now(), -1);
  is_dead = true;
  EXPECT_EQ(ask(table, own, record_request(3, F_RDLCK, 0, 0))->now(), 0);
  EXPECT_EQ(waiter->now(), 0);
}

// Both holders have died. Dropping the locks of one makes the table try the waiter, which drops the
// locks of the requesting owner.
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

// The request is tried again after a waiter has weakened its lock, and then itself weakens a lock.
TEST_F(LocksOfADeadHolder, AWaiterGetsALockThatARepeatedRequestWeakens) {
  LockTable others{counters, resting, system()};
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

}  // namespace
}  // namespace cacheshim
