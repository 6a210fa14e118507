// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fuse/jobs/job.h"
#include "tests/unit/models/flights_model.h"
#include "tests/unit/support/overlay_fixture.h"
#include "tests/unit/models/random_runs.h"

// Tests single flight in random interleavings of builders that finish, fail, loop, give up, are
// killed or stopped, and of waiting processes (flights_model.h). A failure prints the seed and the
// shortest sequence found that still fails. CACHESHIM_FLIGHT_SEEDS sets the number of
// interleavings, CACHESHIM_FLIGHT_SEED the first seed.
namespace cacheshim {
namespace {

using flights_model::Action;
using flights_model::ActionKind;

constexpr std::size_t kSteps = 150;
constexpr std::array kLikely{ActionKind::kProceed,   ActionKind::kProceed,  ActionKind::kProceed,
                             ActionKind::kProceed,   ActionKind::kMakeFile, ActionKind::kFinish,
                             ActionKind::kFinish,    ActionKind::kReturn,   ActionKind::kClear,
                             ActionKind::kLoop,      ActionKind::kRemove,   ActionKind::kNest,
                             ActionKind::kKill,      ActionKind::kStop,     ActionKind::kContinue,
                             ActionKind::kInterrupt, ActionKind::kPass,     ActionKind::kPass,
                             ActionKind::kTend,      ActionKind::kTend,     ActionKind::kTend};

std::string describe(const Action& action) {
  constexpr std::array kWords{"proceed",  "make a file", "finish", "return",    "clear",
                              "loop",     "remove",      "nest",   "kill",      "stop",
                              "continue", "interrupt",   "pass",   "pass long", "tend"};
  return std::string(kWords.at(static_cast<std::size_t>(action.kind))) + " process " +
         std::to_string(action.process) + " number " + std::to_string(action.number);
}

std::vector<Action> random_actions(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Action> actions;
  for (std::size_t at = 0; at < kSteps; ++at) {
    const bool is_long = random() % 100 == 0;
    const ActionKind kind = is_long ? ActionKind::kPassLong : kLikely.at(random() % kLikely.size());
    actions.push_back(
        {kind, random() % flights_model::kProcesses, static_cast<unsigned>(random() % 60)});
  }
  return actions;
}

class FlightsModelTest : public OverlayTest {
 protected:
  FlightsModelTest() {
    for (Job* job : {&one_, &two_, &three_}) job->begin({}, PublishPolicy::kComplete, false);
  }
  std::string run(const std::vector<Action>& actions) {
    return flights_model::run({&one_, &two_, &three_}, counters_, actions);
  }

  NodeTable nodes_;
  const std::shared_ptr<LowerStack> lowers_ =
      std::make_shared<LowerStack>(std::vector{base_.get()});
  const std::shared_ptr<Job> one_job_ =
      std::make_shared<Job>("one", lowers_, entries_, counters_, nodes_);
  Job& one_ = *one_job_;
  const std::shared_ptr<Job> two_job_ =
      std::make_shared<Job>("two", lowers_, entries_, counters_, nodes_);
  Job& two_ = *two_job_;
  const std::shared_ptr<Job> three_job_ =
      std::make_shared<Job>("three", lowers_, entries_, counters_, nodes_);
  Job& three_ = *three_job_;
};

TEST_F(FlightsModelTest, EveryInterleavingHasOneBuilderPerNameAndLeavesNobodyWaiting) {
  const Runs runs{number_from("CACHESHIM_FLIGHT_SEED", 1),
                  number_from("CACHESHIM_FLIGHT_SEEDS", 3000)};
  EXPECT_EQ(first_failure<Action>(
                runs, random_actions,
                [this](const std::vector<Action>& actions) { return run(actions); }, describe),
            "");
}

}  // namespace
}  // namespace cacheshim
