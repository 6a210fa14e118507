// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "store/locks/heartbeats.h"
#include "store/locks/lease_files.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

class LeaseFilesTest : public ::testing::Test {
 protected:
  bool is_empty() const { return std::filesystem::is_empty(scratch_.path() + "/leases"); }

  Scratch scratch_;
  UniqueFd directory_ = scratch_.open_dir("leases");
  // Two daemons: each LeaseFiles opens the lease files separately, so their flocks conflict.
  LeaseFiles one_{directory_.get()};
  LeaseFiles other_{directory_.get()};
};

TEST_F(LeaseFilesTest, OneDaemonHoldsALease) {
  auto lease = one_.try_take("triton/KEY/x.so");
  ASSERT_TRUE(lease);
  EXPECT_TRUE(*lease);
  EXPECT_TRUE(other_.try_take("triton/KEY/x.so").failed_with(EWOULDBLOCK));
  EXPECT_TRUE(other_.try_take("triton/KEY/y.so"));
}

TEST_F(LeaseFilesTest, AnotherDaemonFindsTheBuildersUser) {
  auto lease = one_.try_take("triton/KEY/x.so");
  ASSERT_TRUE(lease);
  EXPECT_FALSE(other_.builder_of("triton/KEY/x.so"));
  for (const uid_t uid : {4294967294U, 20001U}) {
    one_.note_builder(*lease, uid);
    const auto builder = other_.builder_of("triton/KEY/x.so");
    ASSERT_TRUE(builder);
    EXPECT_EQ(builder->uid, uid);
  }
  one_.release("triton/KEY/x.so", *std::move(lease));
  EXPECT_FALSE(other_.builder_of("triton/KEY/x.so"));
}

TEST_F(LeaseFilesTest, AReleasedLeaseLeavesNoFile) {
  auto lease = one_.try_take("triton/KEY/x.so");
  ASSERT_TRUE(lease);
  one_.release("triton/KEY/x.so", *std::move(lease));
  EXPECT_TRUE(is_empty());
  EXPECT_TRUE(other_.try_take("triton/KEY/x.so"));
}

TEST_F(LeaseFilesTest, ALeaseOfADeadHolderIsFree) {
  { auto lease = one_.try_take("triton/KEY/x.so"); }
  EXPECT_FALSE(is_empty());
  EXPECT_TRUE(other_.try_take("triton/KEY/x.so"));
}

TEST_F(LeaseFilesTest, ASweepRemovesUnheldFiles) {
  { auto lease = one_.try_take("left"); }
  auto lease = one_.try_take("held");
  ASSERT_TRUE(lease);
  other_.sweep();
  EXPECT_FALSE(scratch_.exists("leases/" + lease_name("left")));
  EXPECT_TRUE(scratch_.exists("leases/" + lease_name("held")));
  EXPECT_TRUE(other_.try_take("held").failed_with(EWOULDBLOCK));
}

TEST_F(LeaseFilesTest, ASweepKeepsAFileWithARecordLock) {
  { auto lease = one_.try_take("baton"); }
  const std::string path = "leases/" + lease_name("baton");
  const UniqueFd file(::open((scratch_ / path).c_str(), O_RDWR | O_CLOEXEC));
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_len = 1;
  ASSERT_EQ(::fcntl(file.get(), F_OFD_SETLK, &byte), 0);
  other_.sweep();
  EXPECT_TRUE(scratch_.exists(path));
}

TEST_F(LeaseFilesTest, WithoutADirectoryEveryLeaseIsGranted) {
  const LeaseFiles nowhere(-1);
  for (int i = 0; i < 2; ++i) {
    auto lease = nowhere.try_take("triton/KEY/x.so");
    ASSERT_TRUE(lease);
    EXPECT_FALSE(*lease);
  }
}

TEST_F(LeaseFilesTest, TwoNeverHoldALeaseAtOnceAlthoughItsFileIsRemovedEachTime) {
  constexpr int kRounds = 2000;
  std::atomic<int> holders{0};
  std::atomic<int> broken{0};
  const auto take_and_release = [&](const LeaseFiles& leases) {
    for (int round = 0; round < kRounds; ++round) {
      auto lease = leases.try_take("name");
      if (!lease) continue;
      if (holders.fetch_add(1) != 0) ++broken;
      holders.fetch_sub(1);
      leases.release("name", *std::move(lease));
    }
  };
  {
    std::vector<std::jthread> threads;
    for (const LeaseFiles* leases : {&one_, &other_, &one_}) {
      threads.emplace_back([&, leases] { take_and_release(*leases); });
    }
  }
  EXPECT_EQ(broken, 0);
}

// Two daemons on different machines, with heartbeats. The parameter says whether the file system supports flock(2).
class SharedLeaseFilesTest : public LeaseFilesTest, public ::testing::WithParamInterface<bool> {
 protected:
  Heartbeats::Clock::time_point now() const { return now_; }
  LeaseFiles with(Heartbeats& heartbeats) const {
    return LeaseFiles(directory_.get(), {.heartbeats = &heartbeats, .has_locks = GetParam()});
  }
  void beat_for(std::chrono::seconds time, const std::vector<Heartbeats*>& alive) {
    for (const auto end = now_ + time; now_ < end;) {
      now_ += std::chrono::seconds(1);
      for (Heartbeats* daemon : alive) ASSERT_TRUE(daemon->beat());
      (void)here_.is_dead("there");
      (void)here_.is_dead("here");
    }
  }
  // Takes the lease on behalf of the daemon `there_`, and records uid 7 as the builder.
  UniqueFd take_there() {
    auto lease = with(there_).try_take(kPath);
    EXPECT_TRUE(lease && *lease);
    with(there_).note_builder(*lease, 7);
    return *std::move(lease);
  }

  static constexpr const char* kPath = "triton/KEY/x.so";
  Heartbeats::Clock::time_point now_ = Heartbeats::Clock::now();
  Heartbeats here_{directory_.get(), "here", [this] { return now(); }};
  Heartbeats there_{directory_.get(), "there", [this] { return now(); }};
};

TEST_P(SharedLeaseFilesTest, ALivingDaemonKeepsItsLease) {
  const UniqueFd lease = take_there();
  beat_for(std::chrono::minutes(2), {&here_, &there_});
  EXPECT_TRUE(with(here_).try_take(kPath).failed_with(EWOULDBLOCK));
  EXPECT_EQ(with(here_).builder_of(kPath)->uid, 7U);
}

TEST_P(SharedLeaseFilesTest, TheLeaseOfADeadDaemonIsTakenOver) {
  const UniqueFd kept_by_server = take_there();
  beat_for(std::chrono::seconds(3), {&here_, &there_});
  beat_for(Heartbeats::kDeadAfter - std::chrono::seconds(1), {&here_});
  EXPECT_TRUE(with(here_).try_take(kPath).failed_with(EWOULDBLOCK));
  beat_for(std::chrono::seconds(1), {&here_});
  const auto lease = with(here_).try_take(kPath);
  ASSERT_TRUE(lease);
  EXPECT_TRUE(*lease);
  EXPECT_FALSE(scratch_.exists("leases/takeover"));
}

TEST_P(SharedLeaseFilesTest, OnlyOneDaemonTakesALeaseOver) {
  const UniqueFd kept_by_server = take_there();
  beat_for(std::chrono::seconds(30), {&here_});
  const auto lease = with(here_).try_take(kPath);
  ASSERT_TRUE(lease && *lease);
  with(here_).note_builder(*lease, 8);
  Heartbeats third(directory_.get(), "third", [this] { return now(); });
  ASSERT_TRUE(third.beat());
  EXPECT_FALSE(third.is_dead("here"));
  beat_for(std::chrono::seconds(30), {&here_});
  EXPECT_TRUE(with(third).try_take(kPath).failed_with(EWOULDBLOCK));
}

TEST_P(SharedLeaseFilesTest, ADaemonThatCountedAsDeadDoesNotReleaseItsSuccessorsLease) {
  UniqueFd old = take_there();
  beat_for(std::chrono::seconds(30), {&here_});
  const auto lease = with(here_).try_take(kPath);
  ASSERT_TRUE(lease && *lease);
  with(here_).note_builder(*lease, 8);
  with(there_).release(kPath, std::move(old));
  EXPECT_TRUE(scratch_.exists("leases/" + lease_name(kPath)));
  beat_for(std::chrono::seconds(1), {&here_, &there_});
  EXPECT_TRUE(with(there_).try_take(kPath).failed_with(EWOULDBLOCK));
}

TEST_P(SharedLeaseFilesTest, ALeaseWhoseFileADeadDaemonHasLeftIsNotTakenOverAgain) {
  { const UniqueFd lock_ends_with_the_daemon = take_there(); }
  beat_for(std::chrono::seconds(30), {&here_});
  const auto lease = with(here_).try_take(kPath);
  ASSERT_TRUE(lease && *lease);
  Heartbeats third(directory_.get(), "third", [this] { return now(); });
  (void)third.is_dead("there");
  beat_for(std::chrono::seconds(30), {&here_});
  EXPECT_TRUE(third.is_dead("there"));
  EXPECT_TRUE(with(third).try_take(kPath).failed_with(EWOULDBLOCK));
}

TEST_P(SharedLeaseFilesTest, AReleasedLeaseIsFreeAtOnce) {
  with(there_).release(kPath, take_there());
  const auto lease = with(here_).try_take(kPath);
  ASSERT_TRUE(lease);
  EXPECT_TRUE(*lease);
}

INSTANTIATE_TEST_SUITE_P(Locks, SharedLeaseFilesTest, ::testing::Values(true, false));

TEST_F(LeaseFilesTest, AHeartbeatFileGoesWithItsDaemon) {
  {
    Heartbeats daemon(directory_.get(), "one");
    ASSERT_TRUE(daemon.beat());
    other_.sweep();
    EXPECT_TRUE(scratch_.exists("leases/alive-one"));
    EXPECT_TRUE(daemon.has_locks());
  }
  EXPECT_TRUE(is_empty());
}

}  // namespace
}  // namespace cacheshim
