// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fuse/services/publishing/underway.h"
#include "tests/unit/fuse/flights_fixture.h"

// Tests when a build counts as failed, with a simulated clock.
namespace cacheshim {
namespace {

using std::chrono::milliseconds;
using Advice = Flights::Advice;
using Step = BuildStep;

const std::string& kName = kFlightName;

// The caller of close() holds a lock. So close() only returns the replies, and the caller sends them after releasing
// the lock.
TEST_F(FlightsTest, CloseReturnsTheRepliesWithoutSendingThem) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  PendingReplies replies = flights_.close();
  EXPECT_FALSE(*other);
  replies.give();
  EXPECT_TRUE(*other);
}

// Each user may hold one lease and have one waiter.
TEST_F(FlightsTest, AUserAtALimitBuildsWithoutALeaseAndDoesNotWait) {
  UserLimits::Options one;
  value_of(one.most, Limit::kLeases) = value_of(one.most, Limit::kWaiters) = 1;
  UserLimits limits(one);
  UserAccount& user = limits.account(1000);
  UserAccount& neighbor = limits.account(1001);
  const auto paid_lookup = [&](Job& job, const Sleeper& process, const std::string& path,
                               UserAccount& account) {
    LeaseRequest paid = request(job, process, path);
    paid.account = &account;
    return std::pair(flights_.request_lease(paid), paid);
  };
  const auto begin_wait = [&](const LeaseRequest& paid, NodeIndex placeholder) {
    auto released = std::make_shared<std::atomic<bool>>(false);
    flights_.wait(placeholder, std::make_shared<FlightWait>(paid, [released] { *released = true; }));
    return released;
  };
  const std::string more = std::string(kName) + "2";
  EXPECT_EQ(paid_lookup(one_, builder_, kName, user).first.advice, Advice::kBuildWithLease);
  EXPECT_EQ(paid_lookup(one_, builder_, more, user).first.advice, Advice::kBuild);
  EXPECT_EQ(paid_lookup(two_, other_, more, neighbor).first.advice, Advice::kBuildWithLease);

  const Sleeper third;
  const Sleeper fourth;
  const auto [first_lookup, first] = paid_lookup(two_, third, kName, user);
  ASSERT_EQ(first_lookup.advice, Advice::kWait);
  const auto waiting = begin_wait(first, first_lookup.placeholder);
  EXPECT_FALSE(*waiting);
  const auto [second_lookup, second] = paid_lookup(two_, fourth, kName, user);
  ASSERT_EQ(second_lookup.advice, Advice::kWait);
  EXPECT_TRUE(*begin_wait(second, second_lookup.placeholder));
  EXPECT_EQ(paid_lookup(two_, fourth, kName, user).first.advice, Advice::kBuild);

  flights_.close().give();
  EXPECT_TRUE(*waiting);
  EXPECT_EQ(user.used(Limit::kLeases), 0U);
  EXPECT_EQ(user.used(Limit::kHandles), 0U);
}

TEST_F(FlightsTest, AThreadThatReturnsWithoutHavingCreatedAFileHasFailed) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  pass(kFlightApproach);
  // Flights treats this lookup as part of the same sequence of calls, such as stat(2) and then open(2).
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
  EXPECT_FALSE(*other);
  pass(kFlightApproach + milliseconds(1));
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
  EXPECT_TRUE(*other);
  EXPECT_EQ(counters_.flight_failures, 1U);
}

TEST_F(FlightsTest, NobodyWaitsForAFailedNameDuringTheFailurePeriod) {
  const Sleeper third;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  pass(milliseconds(50));
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuild);
  for (const Sleeper* process : {&other_, &third}) {
    EXPECT_EQ(lookup(two_, *process), Advice::kBuild);
  }
  pass(LeaseTable::kFailedFor);
  EXPECT_EQ(lookup(two_, other_), Advice::kBuildWithLease);
  EXPECT_EQ(lookup(two_, third), Advice::kWait);
}

TEST_F(FlightsTest, ASuccessfulBuildEndsTheFailurePeriod) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  pass(milliseconds(50));
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuild);
  flights_.finished(two_, "fam/KEY");
  EXPECT_EQ(lookup(two_, other_), Advice::kBuildWithLease);
}

TEST_F(FlightsTest, AThreadThatReturnsAfterCreatingAFileIsAtWork) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  flights_.note_step(one_, "fam/KEY", Step::kTemporary);
  pass(std::chrono::seconds(30));
  // When a process renames a file to the name, the kernel looks up the name once more.
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
  EXPECT_FALSE(*other);
}

// After the wait, the kernel sends two lookups for the same call. On a busy machine, any amount of time can pass
// between them. Two lookups therefore do not show that the build has failed; a third one does.
TEST_F(FlightsTest, ANewBuilderMayRepeatItsLookupTwice) {
  const Sleeper third;
  auto first = std::make_unique<const Sleeper>();
  ASSERT_EQ(lookup(one_, *first), Advice::kBuildWithLease);
  const auto next = wait(two_, other_);
  const auto last = wait(one_, third);
  first.reset();
  await(next);
  pass(milliseconds(100));
  EXPECT_EQ(lookup(two_, other_), Advice::kBuild);
  EXPECT_FALSE(*last);
  pass(milliseconds(100));
  EXPECT_EQ(lookup(two_, other_), Advice::kBuild);
  EXPECT_FALSE(*last);
  pass(milliseconds(100));
  EXPECT_EQ(lookup(two_, other_), Advice::kBuild);
  EXPECT_TRUE(*last);
}

TEST_F(FlightsTest, ADescendantOfTheNextBuilderDoesNotWaitForIt) {
  const Sleeper child;
  auto first = std::make_unique<const Sleeper>();
  ASSERT_EQ(lookup(one_, *first), Advice::kBuildWithLease);
  const auto next = wait(two_, other_);
  LeaseRequest descendant = request(two_, child);
  descendant.lineage.push_back(request(two_, other_).lineage.front());
  const auto answer = flights_.request_lease(descendant);
  ASSERT_EQ(answer.advice, Advice::kWait);
  auto released = std::make_shared<std::atomic<bool>>(false);
  flights_.wait(answer.placeholder,
                std::make_shared<FlightWait>(descendant, [released] { *released = true; }));
  first.reset();
  await(next);
  await(released);
  EXPECT_EQ(flights_.request_lease(descendant).advice, Advice::kBuild);
}

TEST_F(FlightsTest, AnotherThreadOfTheBuilderDoesNotFailTheBuild) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  pass(std::chrono::seconds(30));
  EXPECT_EQ(lookup(one_, builder_, kName, 1), Advice::kBuild);
  EXPECT_FALSE(*other);
}

TEST_F(FlightsTest, BeginningAnotherEntryFailsThePreviousOne) {
  builds_one_at_a_time_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  flights_.note_step(one_, "fam/KEY", Step::kPart);
  EXPECT_EQ(lookup(one_, builder_, "fam/KEY/stub.so"), Advice::kBuildWithLease);  // the same entry
  EXPECT_EQ(lookup(one_, builder_, "fam/NEXT/kernel.json", 1),
            Advice::kBuildWithLease);  // another thread
  EXPECT_FALSE(*other);
  EXPECT_EQ(lookup(one_, builder_, "fam/LAST/kernel.json"), Advice::kBuildWithLease);
  EXPECT_TRUE(*other);
}

TEST_F(FlightsTest, ABuilderOfOneEntryAtATimeThatOpensAnotherEntryHasFailed) {
  builds_one_at_a_time_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  flights_.note_open(request(one_, builder_, "fam/KEY/other.json"));        // the same entry
  flights_.note_open(request(one_, builder_, "fam/THERE/kernel.json", 1));  // another thread
  EXPECT_FALSE(*other);
  flights_.note_open(request(one_, builder_, "fam/THERE/kernel.json"));
  EXPECT_TRUE(*other);
  EXPECT_EQ(counters_.flight_failures, 1U);
}

TEST_F(FlightsTest, AJobCountsAsBuildingUntilItsLastBuildEnds) {
  builds_one_at_a_time_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  ASSERT_EQ(lookup(one_, builder_, "fam/NEXT/kernel.json", 1), Advice::kBuildWithLease);
  EXPECT_EQ(building_, std::set<const Job*>{&one_});
  flights_.finished(one_, "fam/KEY");
  EXPECT_EQ(building_, std::set<const Job*>{&one_});
  flights_.finished(one_, "fam/NEXT");
  EXPECT_TRUE(building_.empty());
}

TEST_F(FlightsTest, TheJobOfTheNextBuilderBuilds) {
  builds_one_at_a_time_ = true;
  auto first = std::make_unique<const Sleeper>();
  ASSERT_EQ(lookup(one_, *first), Advice::kBuildWithLease);
  const auto next = wait(two_, other_);
  first.reset();
  await(next);
  EXPECT_EQ(building_, std::set<const Job*>{&two_});
}

// Another thread wakes the waiters, possibly only after the builder has looked up its next name.
TEST_F(FlightsTest, ContinuingAfterAFinishedEntryIsNoFailure) {
  builds_one_at_a_time_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  is_inspection_held_ = true;
  is_there_ = true;
  flights_.finished(one_, "fam/KEY");
  EXPECT_EQ(lookup(one_, builder_, "fam/NEXT/kernel.json"), Advice::kBuildWithLease);
  EXPECT_EQ(counters_.flight_failures, 0U);
  is_inspection_held_ = false;
  await(other);
  EXPECT_EQ(counters_.flight_hits, 1U);
}

// The process's job was not yet waiting when FlightTender's inspection began, so the inspection did not cover that job.
// FlightTender must not make the process the builder.
TEST_F(FlightsTest, AProcessThatBeginsToWaitDuringTheInspectionIsNotTheNextBuilder) {
  const auto three = std::make_shared<Job>("three", lowers_, entries_, counters_, nodes_);
  const Sleeper third;
  Released late;
  constexpr int kInspectionsPerCheck = 2;  // one for each of the jobs one_ and two_
  during_inspection_ = [&](int number) {
    if (number == 1) flights_.finished(one_, "fam/KEY");
    if (number != kInspectionsPerCheck + 1) return;
    is_there_ = true;
    late = wait(*three, third);
  };
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  await(other);
  await(late);
  EXPECT_EQ(counters_.flight_hits, 2U);
  EXPECT_EQ(counters_.flight_leases, 1U);
  await([&] { return !flights_.any(); });
}

// A rename between two directories returns before the entry is published.
TEST_F(FlightsTest, ContinuingWhileTheEntryIsBeingPublishedIsNoFailure) {
  builds_one_at_a_time_ = true;
  auto builder = std::make_unique<const Sleeper>();
  ASSERT_EQ(lookup(one_, *builder), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  set_publishers({one_job_});
  EXPECT_EQ(lookup(one_, *builder, "fam/NEXT/kernel.json"), Advice::kBuildWithLease);
  await_exit(builder);
  EXPECT_FALSE(*other);
  EXPECT_EQ(counters_.flight_failures, 0U);
  is_there_ = true;
  set_publishers({});
  flights_.finished(one_, "fam/KEY");
  await(other);
  EXPECT_EQ(counters_.flight_hits, 1U);
}

TEST_F(FlightsTest, AWaiterBuildsIfTheEntryOfABuilderThatIsGoneIsNotPublished) {
  auto builder = std::make_unique<const Sleeper>();
  ASSERT_EQ(lookup(one_, *builder), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  set_publishers({one_job_});
  await_exit(builder);
  EXPECT_FALSE(*other);
  set_publishers({});
  await(other);
  EXPECT_EQ(lookup(two_, other_), Advice::kBuild);
  EXPECT_EQ(counters_.flight_hits, 0U);
}

TEST_F(FlightsTest, ProcessesOfOtherJobsWaitForAnEntryThatIsBeingPublishedWithoutALease) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  pass(milliseconds(50));
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuild);  // the build has failed
  set_publishers({one_job_});
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
  const auto other = wait(two_, other_);
  is_there_ = true;
  set_publishers({});
  await(other);
  EXPECT_EQ(counters_.flight_hits, 1U);
}

TEST_F(FlightsTest, ATaskThatIsDroppedEndsThePublicationAndItsRequests) {
  Underway underway;
  auto request_to_answer = std::make_shared<int>();
  Underway::Waiters waiters;
  waiters.answers.push_back([request_to_answer] {});
  auto publication = underway.begin(one_, "fam/KEY", std::move(waiters));
  EXPECT_TRUE(underway.join(one_, "fam/KEY/tmp.1", {}, [request_to_answer] {}));
  EXPECT_FALSE(underway.join(two_, "fam/KEY/tmp.1", {}, [] {}));
  EXPECT_EQ(underway.publishers("fam/KEY"), std::vector{one_job_});
  publication.reset();
  EXPECT_TRUE(underway.publishers("fam/KEY").empty());
  EXPECT_EQ(request_to_answer.use_count(), 1);
}

TEST_F(FlightsTest, ABuilderThatHasTakenOverBuildsOneEntryAtATime) {
  builds_one_at_a_time_ = true;
  const Sleeper third;
  auto first = std::make_unique<const Sleeper>();
  ASSERT_EQ(lookup(one_, *first), Advice::kBuildWithLease);
  const auto next = wait(two_, other_);
  const auto last = wait(one_, third);
  first.reset();
  await(next);
  EXPECT_EQ(lookup(two_, other_), Advice::kBuild);
  EXPECT_FALSE(*last);
  EXPECT_EQ(lookup(two_, other_, "fam/NEXT/kernel.json"), Advice::kBuildWithLease);
  EXPECT_TRUE(*last);
}

TEST_F(FlightsTest, OtherProcessesMayLookUpAnotherEntryMeanwhile) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  EXPECT_EQ(lookup(one_, builder_, "fam/NEXT/kernel.json"), Advice::kBuildWithLease);
  EXPECT_FALSE(*other);
}

TEST_F(FlightsTest, RemovingATemporaryFileWithoutAPartIsAFailure) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  flights_.note_step(one_, "fam/KEY", Step::kTemporary);
  flights_.note_step(two_, "fam/KEY", Step::kCleared);  // a step of another job
  flights_.note_step(one_, "fam/OTHER", Step::kCleared);
  EXPECT_FALSE(*other);
  flights_.note_step(one_, "fam/KEY", Step::kCleared);
  EXPECT_TRUE(*other);
}

TEST_F(FlightsTest, RemovingATemporaryFileAfterAPartIsNoFailure) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  flights_.note_step(one_, "fam/KEY", Step::kTemporary);
  flights_.note_step(one_, "fam/KEY", Step::kPart);
  flights_.note_step(one_, "fam/KEY", Step::kCleared);
  EXPECT_FALSE(*other);
}

// In these tests, processes wait for entries that are built elsewhere and renamed into place.
class FlightsOfEntriesTest : public FlightsTest {
 protected:
  FlightsOfEntriesTest() { entries_are_names_ = true; }
};

TEST_F(FlightsOfEntriesTest, ABuilderThatLooksUpItsEntryAgainIsAtWork) {
  works_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  for (int lookups = 0; lookups < 100; ++lookups) {  // one lookup for each file of the entry
    pass(milliseconds(5));
    EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
  }
  pass(std::chrono::seconds(30));
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
  EXPECT_FALSE(*other);
}

TEST_F(FlightsOfEntriesTest, BeginningAnotherEntryFailsThePreviousOne) {
  builds_one_at_a_time_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  EXPECT_EQ(lookup(one_, builder_, "fam/NEXT"), Advice::kBuildWithLease);
  EXPECT_TRUE(*other);
  EXPECT_EQ(lookup(two_, other_), Advice::kBuild);
  EXPECT_EQ(counters_.flight_failures, 1U);
}

TEST_F(FlightsOfEntriesTest, WaitersBuildWhenTheBuildersThreadHasEnded) {
  works_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  await_checks();
  EXPECT_FALSE(*other);
  thread_has_ended_ = true;
  pass(milliseconds(200));
  await(other);
  EXPECT_EQ(counters_.flight_failures, 1U);
}

TEST_F(FlightsOfEntriesTest, WaitersBuildWhenTheBuilderHasBeenIdleForASecond) {
  works_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  for (int seconds = 0; seconds < 3; ++seconds) {
    pass(BuilderActivity::kIdleFor);
    await_checks();
  }
  EXPECT_FALSE(*other);
  works_ = false;
  await_checks();
  EXPECT_FALSE(*other);
  pass(BuilderActivity::kIdleFor);
  await(other);
  EXPECT_EQ(lookup(two_, other_), Advice::kBuild);
  EXPECT_EQ(counters_.flight_failures, 1U);
  EXPECT_EQ(counters_.flight_timeouts, 0U);
}

TEST_F(FlightsOfEntriesTest, ABuilderThatWaitsForAnotherOneIsNotIdle) {
  const Sleeper third;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  const auto other = wait(two_, other_);
  ASSERT_EQ(lookup(two_, third, "fam/NEEDED"), Advice::kBuildWithLease);
  worker_ = third.pid();
  const auto needed = wait(one_, builder_, "fam/NEEDED");
  for (int seconds = 0; seconds < 3; ++seconds) {
    pass(BuilderActivity::kIdleFor);
    await_checks();
  }
  EXPECT_FALSE(*needed);
  EXPECT_FALSE(*other);
  worker_ = 0;
  await([&] {
    pass(milliseconds(50));
    return needed->load() && other->load();
  });
}

TEST_F(FlightsOfEntriesTest, ALeaseThatNobodyWaitsForEndsWithoutATraceWhenItsHolderIsIdle) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  await_checks();
  pass(BuilderActivity::kIdleFor);
  await([&] { return !flights_.any(); });
  EXPECT_EQ(lookup(two_, other_), Advice::kBuildWithLease);
  EXPECT_EQ(counters_.flight_failures, 0U);
}

TEST_F(FlightsOfEntriesTest, ALeaseThatNobodyWaitsForEndsAfterTheTimeout) {
  works_ = true;
  ASSERT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  await_checks();
  EXPECT_TRUE(flights_.any());
  pass(std::chrono::minutes(2));
  await([&] { return !flights_.any(); });
}

TEST_F(FlightsOfEntriesTest, AProcessWithTooManyLeasesLosesTheOldestThatNobodyWaitsFor) {
  const auto name = [](std::size_t number) { return "fam/" + std::to_string(number); };
  for (std::size_t number = 0; number < LeaseTable::kMostLeasesOfProcess; ++number) {
    ASSERT_EQ(lookup(one_, builder_, name(number)), Advice::kBuildWithLease);
  }
  const auto other = wait(two_, other_, name(0));
  EXPECT_EQ(lookup(one_, builder_, name(LeaseTable::kMostLeasesOfProcess)),
            Advice::kBuildWithLease);
  EXPECT_EQ(flights_.describe().size(), LeaseTable::kMostLeasesOfProcess);
  EXPECT_FALSE(*other);
  EXPECT_EQ(lookup(two_, other_, name(1)), Advice::kBuildWithLease);
  EXPECT_EQ(lookup(two_, other_, name(2)), Advice::kWait);
}

TEST_F(FlightsOfEntriesTest, ProcessesBuildWithoutALeaseWhenThereAreTooMany) {
  std::vector<std::unique_ptr<Sleeper>> leaders;
  for (std::size_t number = 0; number < LeaseTable::kMostLeases; ++number) {
    if (number % LeaseTable::kMostLeasesOfProcess == 0)
      leaders.push_back(std::make_unique<Sleeper>());
    ASSERT_EQ(lookup(one_, *leaders.back(), "fam/" + std::to_string(number)),
              Advice::kBuildWithLease);
  }
  EXPECT_EQ(lookup(two_, other_, "fam/LAST"), Advice::kBuild);
  EXPECT_EQ(lookup(two_, other_, "fam/0"), Advice::kWait);
}

}  // namespace
}  // namespace cacheshim
