// SPDX-License-Identifier: Apache-2.0
// Leases whose entries may come from other machines (RemoteEntries).
#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "tests/unit/fuse/flights_fixture.h"

namespace cacheshim {
namespace {

using Advice = Flights::Advice;

// The searches for entries on other machines that leases have begun. A test settles all of them at once.
struct Searches {
  class Lease final : public RemoteLease {
   public:
    Lease(Searches& all, std::function<void()> on_settled) : all_(all) {
      ++all_.count;
      const MutexLock lock(all_.mutex);
      all_.on_settled = std::move(on_settled);
    }
    ~Lease() override {
      --all_.count;
      const MutexLock lock(all_.mutex);
      all_.on_settled = nullptr;
    }
    bool is_settled() const override { return all_.is_settled; }

   private:
    Searches& all_;
  };

  void settle() {
    is_settled = true;
    const MutexLock lock(mutex);
    if (on_settled) on_settled();
  }

  std::atomic<bool> is_settled{false};
  std::atomic<int> count{0};  // the searches that have not ended
  std::atomic<bool> builds_for_all{false};
  Mutex mutex;
  std::function<void()> on_settled GUARDED_BY(mutex);
};

class FlightsRemoteTest : public FlightsTest {
 protected:
  FlightsRemoteTest() {
    seek_ = [this](const std::string&, bool builds_for_all, std::function<void()> on_settled) {
      searches_.builds_for_all = builds_for_all;
      return std::make_unique<Searches::Lease>(searches_, std::move(on_settled));
    };
  }
  ~FlightsRemoteTest() override { flights_.close().give(); }

  Searches searches_;
};

TEST_F(FlightsRemoteTest, TheFirstProcessWaitsForTheSearchAndFindsTheEntry) {
  const auto one = wait(one_, builder_);
  const auto two = wait(two_, other_);
  EXPECT_TRUE(searches_.builds_for_all);
  await([&] { return inspections_ >= 4; });
  EXPECT_FALSE(*one || *two);
  EXPECT_EQ(counters_.flight_leases, 0U);
  is_there_ = true;
  searches_.settle();
  await(one);
  await(two);
  await([&] { return searches_.count == 0; });
  EXPECT_EQ(counters_.flight_hits, 2U);
  EXPECT_EQ(counters_.flight_leases, 0U);
}

TEST_F(FlightsRemoteTest, OneOfTheWaitersBuildsWhenTheSearchFindsNothing) {
  const auto one = wait(one_, builder_);
  const auto two = wait(two_, other_);
  searches_.settle();
  await(one);
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
  EXPECT_EQ(counters_.flight_leases, 1U);
  EXPECT_FALSE(*two);
  EXPECT_EQ(searches_.count, 1) << "the lease keeps the right to build";
  is_there_ = true;
  flights_.finished(one_, kFlightName);
  await(two);
  await([&] { return searches_.count == 0; });
}

TEST_F(FlightsRemoteTest, ASettledSearchDelaysNobody) {
  searches_.is_settled = true;
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuildWithLease);
  EXPECT_EQ(searches_.count, 1);
  flights_.give_up(request(one_, builder_));
  EXPECT_EQ(searches_.count, 0);
}

TEST_F(FlightsRemoteTest, AProcessThatHasNotBegunToWaitBecomesTheBuilder) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kWait);
  searches_.settle();
  await([&] { return counters_.flight_leases == 1; });
  EXPECT_EQ(searches_.count, 1) << "another machine must not get the lease in between";
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
  EXPECT_EQ(lookup(two_, other_), Advice::kWait);
}

TEST_F(FlightsRemoteTest, AnEntryThatArrivesBeforeAProcessBeginsToWaitNeedsNoBuilder) {
  ASSERT_EQ(lookup(one_, builder_), Advice::kWait);
  is_there_ = true;
  searches_.settle();
  await([&] { return !flights_.any(); });
  EXPECT_EQ(counters_.flight_leases, 0U);
}

// A wait ends with ESTALE, after which the kernel retries the call only once. A second wait would make the call fail.
TEST_F(FlightsRemoteTest, AProcessThatMissesItsWaitDoesNotWaitForASecondSearch) {
  auto first = std::make_unique<const Sleeper>();
  LeaseRequest late = request(two_, other_);
  ASSERT_EQ(flights_.request_lease(request(one_, *first)).advice, Advice::kWait);
  const auto answer = flights_.request_lease(late);
  ASSERT_EQ(answer.advice, Advice::kWait);
  first.reset();  // no waiting process can become the builder
  searches_.settle();
  await([&] { return !flights_.any(); });
  late.path = late.entry = "";
  std::atomic<bool> is_answered = false;
  flights_.wait(answer.placeholder,
                std::make_shared<FlightWait>(late, [&] { is_answered = true; }));
  EXPECT_TRUE(is_answered);
  searches_.is_settled = false;
  EXPECT_EQ(lookup(two_, other_), Advice::kBuildWithLease);
  EXPECT_EQ(searches_.count, 0) << "no second search";
}

TEST_F(FlightsRemoteTest, AWaitForASearchEndsAtTheTimeout) {
  const auto one = wait(one_, builder_);
  pass(std::chrono::minutes(2));
  await(one);
  EXPECT_EQ(counters_.flight_timeouts, 1U);
  EXPECT_EQ(lookup(one_, builder_), Advice::kBuild);
}

TEST_F(FlightsRemoteTest, TheDescriptionSaysThatTheEntryIsSought) {
  const auto one = wait(one_, builder_);
  const auto flights = flights_.describe();
  ASSERT_EQ(flights.size(), 1U);
  EXPECT_TRUE(flights[0].is_sought);
  EXPECT_EQ(flights[0].builder, 0);
  searches_.settle();
  await(one);
  EXPECT_FALSE(flights_.describe().at(0).is_sought);
}

}  // namespace
}  // namespace cacheshim
