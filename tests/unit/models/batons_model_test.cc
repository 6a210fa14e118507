// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "fuse/services/locks/batons.h"
#include "tests/unit/models/batons_model.h"
#include "tests/unit/models/random_runs.h"

// Tests batons in random interleavings of processes that create, remove and lock batons, and that die
// (batons_model.h). A failure prints the seed and the shortest sequence found that still fails.
// CACHESHIM_BATON_SEEDS sets the number of interleavings, CACHESHIM_BATON_SEED the first seed.
namespace cacheshim::batons_model {
namespace {

constexpr std::size_t kSteps = 80;
constexpr std::array kLikely{ActionKind::kMake,   ActionKind::kMake, ActionKind::kMake,
                             ActionKind::kRemove, ActionKind::kMove, ActionKind::kLock,
                             ActionKind::kKill,   ActionKind::kKill, ActionKind::kEnter,
                             ActionKind::kLeave,  ActionKind::kTend, ActionKind::kTend};

std::string describe(const Action& action) {
  constexpr std::array kWords{"make", "remove", "move", "lock", "kill", "enter", "leave", "tend"};
  return std::string(kWords.at(static_cast<std::size_t>(action.kind))) + " process " +
         std::to_string(action.process) + " path " + std::to_string(action.path);
}

std::vector<Action> random_actions(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Action> actions;
  for (std::size_t at = 0; at < kSteps; ++at) {
    actions.push_back(
        {kLikely.at(random() % kLikely.size()), random() % kProcesses, random() % kPaths});
  }
  return actions;
}

// Without the limit, a job could use up all descriptors of the daemon.
TEST(Batons, AJobHasALimit) {
  EventLoop loop;  // not started
  std::size_t watches = 0;
  const BatonSystem system{
      .watch =
          [&](const ProcessOrigin&) {
            ++watches;
            return UniqueFd();
          },
      .is_alive = [](const ProcessOrigin&) { return true; },
      .is_in_use = [](const ProcessOrigin&, const std::string&) { return false; }};
  Batons batons(
      loop, [](const Baton&) {}, system);
  ProcessOrigin creator;
  creator.process = 100;
  for (std::size_t i = 0; i < 2 * Batons::kMostOfJob; ++i)
    batons.watch({nullptr, std::to_string(i), 1, i}, creator);
  EXPECT_EQ(watches, Batons::kMostOfJob);
  batons.removed(nullptr, "0");
  batons.removed(nullptr, std::to_string(Batons::kMostOfJob));  // this baton was not watched
  batons.watch({nullptr, "next", 1, 1}, creator);
  batons.watch({nullptr, "one too many", 1, 2}, creator);
  EXPECT_EQ(watches, Batons::kMostOfJob + 1);
  // The job does not exist: Batons only compares the pointers of jobs.
  const std::shared_ptr<Job> other(std::shared_ptr<void>(), static_cast<Job*>(static_cast<void*>(&watches)));
  batons.watch({other, "0", 1, 3}, creator);
  EXPECT_EQ(watches, Batons::kMostOfJob + 2);
}

TEST(BatonsModel, OnlyBatonsOfDeadCreatorsAreReaped) {
  const Runs runs{number_from("CACHESHIM_BATON_SEED", 1),
                  number_from("CACHESHIM_BATON_SEEDS", 3000)};
  EXPECT_EQ(first_failure<Action>(runs, random_actions, run, describe), "");
}

}  // namespace
}  // namespace cacheshim::batons_model
