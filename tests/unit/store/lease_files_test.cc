// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <vector>

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
    LeaseFiles::note_builder(*lease, uid);
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

}  // namespace
}  // namespace cacheshim
