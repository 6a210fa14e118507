// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "fuse/flights.h"
#include "fuse/job.h"
#include "tests/unit/overlay_fixture.h"

// When a build counts as failed, with a clock of the test's own.
namespace cacheshim {
namespace {

using std::chrono::milliseconds;
using Advice = Flights::Advice;
using Step = Flights::Step;

const std::string kName = "fam/KEY/kernel.json";

// A process that lives as long as the object.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ != 0) return;
    for (;;) ::pause();
  }
  ~Sleeper() {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

class FlightsTest : public OverlayTest {
 protected:
  FlightsTest() {
    for (Job* job : {&one_, &two_}) job->begin({}, PublishPolicy::kComplete, false);
  }

  // Two seekers of one process are two of its threads if their numbers differ.
  Flights::Seeker seeker(Job& job, const Sleeper& process, const std::string& path = kName,
                         int thread = 0) const {
    Flights::Seeker made{path, &job, /*publishes=*/true, {}, process.pid() + thread};
    const auto stat = stat_of(process.pid());
    made.lineage = {{process.pid(), stat ? stat->start_time : 0}};
    if (!one_by_one_) return made;
    made.entry = path.substr(0, path.rfind('/'));
    made.rule = &profiles_.front().entries.front();
    return made;
  }
  Advice look(Job& job, const Sleeper& process, const std::string& path = kName, int thread = 0) {
    return flights_.look(seeker(job, process, path, thread)).advice;
  }
  std::shared_ptr<std::atomic<bool>> wait(Job& job, const Sleeper& process) {
    Flights::Seeker waiting = seeker(job, process);
    const auto answer = flights_.look(waiting);
    EXPECT_EQ(answer.advice, Advice::kWait);
    waiting.path = waiting.entry = "";  // the request names the placeholder alone
    waiting.rule = nullptr;
    auto released = std::make_shared<std::atomic<bool>>(false);
    flights_.wait(answer.placeholder,
                  std::make_shared<Flights::Wait>(waiting, [released] { *released = true; }));
    return released;
  }
  void pass(milliseconds time) { passed_ms_ += static_cast<int>(time.count()); }
  static void await(const std::shared_ptr<std::atomic<bool>>& released) {
    for (int polls = 0; polls < 1000 && !*released; ++polls) ::usleep(10'000);
    ASSERT_TRUE(*released);
  }

  bool one_by_one_ = false;
  std::atomic<int> passed_ms_{0};
  NodeTable nodes_;
  const std::shared_ptr<LowerStack> lowers_ =
      std::make_shared<LowerStack>(std::vector{base_.get()});
  Job one_{"one", lowers_, entries_, counters_, nodes_};
  Job two_{"two", lowers_, entries_, counters_, nodes_};
  const Sleeper leader_;
  const Sleeper other_;
  Flights flights_{{.timeout = std::chrono::minutes(2),
                    .leases = LeaseFiles(-1),
                    .inspect = [](const Job&, const std::string&) -> Flights::EntryState {
                      return {.is_begun = true, .completes = true};
                    },
                    .now =
                        [this, begin = std::chrono::steady_clock::now()] {
                          return begin + milliseconds(passed_ms_);
                        }},
                   nodes_,
                   counters_};
};

TEST_F(FlightsTest, AThreadThatReturnsWithoutHavingMadeAnythingHasFailed) {
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  const auto other = wait(two_, other_);
  pass(Flights::kApproach);
  EXPECT_EQ(look(one_, leader_), Advice::kBuild);  // one approach: stat(2), then open(2)
  EXPECT_FALSE(*other);
  pass(Flights::kApproach + milliseconds(1));
  EXPECT_EQ(look(one_, leader_), Advice::kBuild);
  EXPECT_TRUE(*other);
  EXPECT_EQ(counters_.flight_failures, 1U);
}

TEST_F(FlightsTest, NobodyWaitsForANameThatHasFailedUntilSomeTimeHasPassed) {
  const Sleeper third;
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  pass(milliseconds(50));
  ASSERT_EQ(look(one_, leader_), Advice::kBuild);
  for (const Sleeper* process : {&other_, &third}) {
    EXPECT_EQ(look(two_, *process), Advice::kBuild);
  }
  pass(Flights::kFailedFor);
  EXPECT_EQ(look(two_, other_), Advice::kLead);
  EXPECT_EQ(look(two_, third), Advice::kWait);
}

TEST_F(FlightsTest, SomebodysSuccessEndsThat) {
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  pass(milliseconds(50));
  ASSERT_EQ(look(one_, leader_), Advice::kBuild);
  flights_.finished(two_, "fam/KEY");
  EXPECT_EQ(look(two_, other_), Advice::kLead);
}

TEST_F(FlightsTest, AThreadThatReturnsWithSomethingMadeIsAtWork) {
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  const auto other = wait(two_, other_);
  flights_.note_step(one_, "fam/KEY", Step::kTemporary);
  pass(std::chrono::seconds(30));
  EXPECT_EQ(look(one_, leader_), Advice::kBuild);  // as rename(2) does
  EXPECT_FALSE(*other);
}

// On a busy machine it takes its time to come.
TEST_F(FlightsTest, WhoTakesOverLooksOnceMoreAtAnyTime) {
  const Sleeper third;
  auto first = std::make_unique<const Sleeper>();
  ASSERT_EQ(look(one_, *first), Advice::kLead);
  const auto next = wait(two_, other_);
  const auto last = wait(one_, third);
  first.reset();
  await(next);
  pass(milliseconds(100));
  EXPECT_EQ(look(two_, other_), Advice::kBuild);
  EXPECT_FALSE(*last);
  pass(milliseconds(100));
  EXPECT_EQ(look(two_, other_), Advice::kBuild);
  EXPECT_TRUE(*last);
}

TEST_F(FlightsTest, AnotherThreadOfTheBuilderSaysNothing) {
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  const auto other = wait(two_, other_);
  pass(std::chrono::seconds(30));
  EXPECT_EQ(look(one_, leader_, kName, 1), Advice::kBuild);
  EXPECT_FALSE(*other);
}

TEST_F(FlightsTest, WhoBuildsOneByOneHasFailedWhatItLeavesForTheNext) {
  one_by_one_ = true;
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  const auto other = wait(two_, other_);
  flights_.note_step(one_, "fam/KEY", Step::kPart);
  EXPECT_EQ(look(one_, leader_, "fam/KEY/stub.so"), Advice::kLead);          // of the same entry
  EXPECT_EQ(look(one_, leader_, "fam/NEXT/kernel.json", 1), Advice::kLead);  // another thread
  EXPECT_FALSE(*other);
  EXPECT_EQ(look(one_, leader_, "fam/LAST/kernel.json"), Advice::kLead);
  EXPECT_TRUE(*other);
}

TEST_F(FlightsTest, ABuilderThatHasTakenOverBuildsOneByOneToo) {
  one_by_one_ = true;
  const Sleeper third;
  auto first = std::make_unique<const Sleeper>();
  ASSERT_EQ(look(one_, *first), Advice::kLead);
  const auto next = wait(two_, other_);
  const auto last = wait(one_, third);
  first.reset();
  await(next);
  EXPECT_EQ(look(two_, other_), Advice::kBuild);
  EXPECT_FALSE(*last);
  EXPECT_EQ(look(two_, other_, "fam/NEXT/kernel.json"), Advice::kLead);
  EXPECT_TRUE(*last);
}

TEST_F(FlightsTest, OthersMayTurnToAnotherEntryMeanwhile) {
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  const auto other = wait(two_, other_);
  EXPECT_EQ(look(one_, leader_, "fam/NEXT/kernel.json"), Advice::kLead);
  EXPECT_FALSE(*other);
}

TEST_F(FlightsTest, WhatIsTemporaryAndRemovedWithoutAPartOfTheEntryTellsOfAFailure) {
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  const auto other = wait(two_, other_);
  flights_.note_step(one_, "fam/KEY", Step::kTemporary);
  flights_.note_step(two_, "fam/KEY", Step::kCleared);  // another job's
  flights_.note_step(one_, "fam/OTHER", Step::kCleared);
  EXPECT_FALSE(*other);
  flights_.note_step(one_, "fam/KEY", Step::kCleared);
  EXPECT_TRUE(*other);
}

TEST_F(FlightsTest, WhatIsRemovedAfterAPartWasMadeTellsNothing) {
  ASSERT_EQ(look(one_, leader_), Advice::kLead);
  const auto other = wait(two_, other_);
  flights_.note_step(one_, "fam/KEY", Step::kTemporary);
  flights_.note_step(one_, "fam/KEY", Step::kPart);
  flights_.note_step(one_, "fam/KEY", Step::kCleared);
  EXPECT_FALSE(*other);
}

}  // namespace
}  // namespace cacheshim
