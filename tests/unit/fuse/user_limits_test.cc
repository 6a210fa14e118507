// SPDX-License-Identifier: Apache-2.0
#include "fuse/limits/user_limits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace cacheshim {
namespace {

constexpr uid_t kUser = 1000, kOther = 1001, kOwn = 77;

UserLimits::Options options(std::uint64_t most, std::uint64_t capacity = 0) {
  UserLimits::Options made{.own_uid = kOwn};
  value_of(made.most, Limit::kHandles) = most;
  value_of(made.capacities, Limit::kHandles) = capacity;
  return made;
}

UserLimits::Use use_of(const UserLimits& limits) { return limits.uses()[0]; }

std::size_t take_all(UserAccount& account, std::size_t most = 10'000) {
  std::size_t taken = 0;
  while (taken < most && account.take(Limit::kHandles, 1)) ++taken;
  return taken;
}

TEST(UserLimits, AUserGetsAsMuchAsTheLimitAndGivesItBack) {
  UserLimits limits(options(3));
  UserAccount& user = limits.account(kUser);
  std::vector<Charge> charges;
  for (int i = 0; i < 3; ++i) charges.push_back(*Charge::take(&user, Limit::kHandles));
  EXPECT_TRUE(Charge::take(&user, Limit::kHandles).failed_with(EMFILE));
  EXPECT_EQ(user.used(Limit::kHandles), 3U);
  EXPECT_TRUE(Charge::take(&limits.account(kOther), Limit::kHandles));
  charges.pop_back();
  EXPECT_TRUE(Charge::take(&user, Limit::kHandles));
  EXPECT_EQ(use_of(limits).refused, 1U);
  charges.clear();
  EXPECT_EQ(use_of(limits).total, 0U);
}

TEST(UserLimits, AChargeThatIsNotPermittedTakesNothing) {
  UserLimits limits(options(10));
  Charge charge = *Charge::take(&limits.account(kUser), Limit::kHandles, 8);
  EXPECT_FALSE(charge.resize(11));
  EXPECT_EQ(use_of(limits).total, 8U);
  EXPECT_TRUE(charge.resize(10));
  EXPECT_TRUE(charge.resize(1));
  EXPECT_EQ(use_of(limits).total, 1U);
}

TEST(UserLimits, AMovedChargeIsGivenBackOnce) {
  UserLimits limits(options(10));
  UserAccount& user = limits.account(kUser);
  {
    Charge charge = *Charge::take(&user, Limit::kHandles, 2);
    Charge other = std::move(charge);
    charge = *Charge::take(&user, Limit::kHandles, 3);
    Charge& self = other;
    other = std::move(self);
    EXPECT_EQ(user.used(Limit::kHandles), 5U);
    other = std::move(charge);
    EXPECT_EQ(user.used(Limit::kHandles), 3U);
  }
  EXPECT_EQ(user.used(Limit::kHandles), 0U);
}

TEST(UserLimits, WithoutAnAccountNobodyIsCharged) {
  Charge charge = *Charge::take(nullptr, Limit::kLocks, 5);
  EXPECT_TRUE(charge.resize(1'000'000));
}

TEST(UserLimits, RootAndTheDaemonsUserAreCountedButNotRefused) {
  UserLimits limits(options(3, 10));
  for (const uid_t uid : {uid_t{0}, kOwn}) EXPECT_EQ(take_all(limits.account(uid), 20), 20U);
  EXPECT_EQ(use_of(limits).total, 40U);
  EXPECT_EQ(use_of(limits).highest, 0U);
  EXPECT_EQ(take_all(limits.account(kUser)), 0U);  // nothing is free
}

TEST(UserLimits, WhatOneUserTakesLeavesAsMuchToOthers) {
  UserLimits limits(options(0, 1000));
  EXPECT_EQ(take_all(limits.account(1)), 500U);
  EXPECT_EQ(take_all(limits.account(2)), 250U);
  EXPECT_EQ(take_all(limits.account(3)), 125U);
  EXPECT_EQ(take_all(limits.account(1)), 0U);
  EXPECT_EQ(use_of(limits).highest, 500U);
}

TEST(UserLimits, ManyGreedyUsersLeaveSomethingToANewOne) {
  constexpr uid_t kUsers = 50;
  UserLimits limits(options(0, 10'000));
  for (int round = 0; round < 1000; ++round) {
    for (uid_t uid = 1; uid <= kUsers; ++uid) (void)limits.account(uid).take(Limit::kHandles, 1);
  }
  EXPECT_GE(take_all(limits.account(kUsers + 1)), 90U);
}

TEST(UserLimits, WithoutValuesThereAreNoLimits) {
  UserLimits limits({});
  EXPECT_EQ(take_all(limits.account(kUser)), 10'000U);
}

TEST(UserLimits, EachUserHasAnAccountUntilThereAreVeryManyUsers) {
  UserLimits limits(options(10));
  std::set<UserAccount*> accounts;
  for (uid_t uid = 100'000; uid < 110'000; ++uid) accounts.insert(&limits.account(uid));
  EXPECT_EQ(accounts.size(), 10'000U);
  EXPECT_EQ(&limits.account(105'000), &limits.account(105'000));
  for (uid_t uid = 0; uid < 2 * UserLimits::kMostAccounts; ++uid) accounts.insert(&limits.account(uid));
  EXPECT_LE(accounts.size(), UserLimits::kMostAccounts + 1);
  EXPECT_EQ(limits.account(105'000).uid(), 105'000U);
}

TEST(UserLimits, ConcurrentChargesAddUp) {
  constexpr int kThreads = 4;
  UserLimits limits(options(100));
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> highest{0};
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (uid_t turn = 0; turn < 5000; ++turn) {
        UserAccount& account = limits.account(1 + turn % 1000);
        const auto charge = Charge::take(&account, Limit::kHandles, static_cast<std::uint64_t>(1 + thread));
        if (account.used(Limit::kHandles) > highest) highest = account.used(Limit::kHandles);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(use_of(limits).total, 0U);
  EXPECT_LE(highest, 10U);  // the sum of four concurrent charges, 1 + 2 + 3 + 4
}

TEST(Limits, EachRowHasAnErrorOrNone) {
  EXPECT_EQ(error_of(Limit::kHandles), EMFILE);
  EXPECT_EQ(error_of(Limit::kLocks), ENOLCK);
  EXPECT_EQ(error_of(Limit::kLeases), 0);
  EXPECT_EQ(row_of(Limit::kJobs).key, "max_jobs");
}

}  // namespace
}  // namespace cacheshim
