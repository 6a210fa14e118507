// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "fuse/services/single_flight/fruitless_users.h"
#include "tests/unit/fuse/flights_fixture.h"

// Tests that a user whose processes hold leases but build nothing delays other users only once.
namespace cacheshim {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using Advice = Flights::Advice;

constexpr uid_t kSquatter = 20001, kVictim = 20002;

class BuilderExclusionTest : public FlightsTest {
 protected:
  BuilderExclusionTest() { uids_ = {{&one_, kSquatter}, {&two_, kVictim}}; }

  // The victim waits for the squatter's lease until the flight timeout has passed.
  void wait_until_timeout(const std::string& path) {
    const Sleeper victim;
    ASSERT_EQ(lookup(one_, builder_, path), Advice::kBuildWithLease);
    const auto waiting = wait(two_, victim, path);
    pass(minutes(2));
    await(waiting);
  }
};

TEST_F(BuilderExclusionTest, AfterOneFruitlessTimeoutOtherUsersDoNotWaitForTheUser) {
  wait_until_timeout("fam/A/x.json");
  EXPECT_EQ(flights_.excluded_users(), std::vector<uid_t>{kSquatter});
  EXPECT_EQ(lookup(one_, builder_, "fam/B/x.json"), Advice::kBuildWithLease);
  EXPECT_EQ(lookup(two_, other_, "fam/B/x.json"), Advice::kBuildWithLease);
  const Sleeper same_job;
  EXPECT_EQ(lookup(one_, same_job, "fam/C/x.json"), Advice::kBuildWithLease);
  EXPECT_EQ(lookup(one_, builder_, "fam/C/x.json"), Advice::kWait);
}

TEST_F(BuilderExclusionTest, TheUsersOtherLeasesEnd) {
  ASSERT_EQ(lookup(one_, builder_, "fam/B/x.json"), Advice::kBuildWithLease);
  wait_until_timeout("fam/A/x.json");
  EXPECT_EQ(lookup(two_, other_, "fam/B/x.json"), Advice::kBuildWithLease);
}

TEST_F(BuilderExclusionTest, WaitersForTheUsersOtherLeasesAreReleasedAtOnce) {
  const Sleeper second, third;
  ASSERT_EQ(lookup(one_, builder_, "fam/B/x.json"), Advice::kBuildWithLease);
  ASSERT_EQ(lookup(one_, builder_, "fam/A/x.json"), Advice::kBuildWithLease);
  const auto late = wait(two_, other_, "fam/A/x.json");
  pass(seconds(119));
  const auto next = wait(two_, second, "fam/B/x.json");
  const auto last = wait(two_, third, "fam/B/x.json");
  pass(seconds(1));
  await(late);
  await(next);
  EXPECT_FALSE(*last);
  EXPECT_EQ(lookup(two_, second, "fam/B/x.json"), Advice::kBuild);
  is_there_ = true;
  flights_.finished(two_, "fam/B");
  await(last);
}

TEST_F(BuilderExclusionTest, BuildersThatExitBeforeTheTimeoutAreChargedToo) {
  const Sleeper victim;
  for (int turn = 0; turn < 2; ++turn) {
    const std::string path = "fam/" + std::to_string(turn) + "/x.json";
    auto squatter = std::make_unique<const Sleeper>();
    ASSERT_EQ(lookup(one_, *squatter, path), Advice::kBuildWithLease);
    const auto waiting = wait(two_, victim, path);
    EXPECT_TRUE(flights_.excluded_users().empty());
    pass(seconds(60));
    squatter.reset();
    await(waiting);
  }
  EXPECT_EQ(flights_.excluded_users(), std::vector<uid_t>{kSquatter});
}

TEST_F(BuilderExclusionTest, ProcessesOfTheSameUserDoNotExcludeIt) {
  const Sleeper same_user;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto waiting = wait(one_, same_user);
  pass(minutes(2));
  await(waiting);
  EXPECT_TRUE(flights_.excluded_users().empty());
}

TEST_F(BuilderExclusionTest, APublishForgivesTheUserOnceAnHour) {
  wait_until_timeout("fam/A/x.json");
  flights_.note_published(kSquatter);
  EXPECT_TRUE(flights_.excluded_users().empty());
  wait_until_timeout("fam/B/x.json");
  flights_.note_published(kSquatter);
  EXPECT_EQ(flights_.excluded_users(), std::vector<uid_t>{kSquatter});
  pass(FruitlessUsers::kPeriod);
  EXPECT_TRUE(flights_.excluded_users().empty());
}

TEST_F(BuilderExclusionTest, ATrustedProcessDoesNotWaitForAnUntrustedOneOfItsOwnJob) {
  const Sleeper untrusted;
  untrusted_.insert(builder_.pid());
  untrusted_.insert(untrusted.pid());
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  EXPECT_EQ(lookup(one_, untrusted), Advice::kWait);
  EXPECT_EQ(lookup(one_, other_), Advice::kBuildWithLease);
  EXPECT_EQ(lookup(one_, untrusted), Advice::kWait);
}

TEST(FruitlessUsers, ForgetsTimeThatIsOlderThanAnHour) {
  FruitlessUsers users(minutes(2));
  FruitlessUsers::Time now{};
  EXPECT_FALSE(users.charge(kSquatter, seconds(119), now));
  now += FruitlessUsers::kPeriod;
  EXPECT_FALSE(users.charge(kSquatter, seconds(119), now));
  EXPECT_TRUE(users.charge(kSquatter, seconds(1), now));
  EXPECT_FALSE(users.charge(kSquatter, minutes(9), now)) << "it is excluded already";
  EXPECT_FALSE(users.has(kVictim, now));
}

}  // namespace
}  // namespace cacheshim
