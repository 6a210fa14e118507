// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/models/locks_model.h"
#include "tests/unit/models/random_runs.h"
#include "tests/unit/support/scratch.h"

// Tests locks in random interleavings of processes that lock, unlock, close, die and are
// interrupted (locks_model.h). A failure prints the seed and the shortest sequence found that still
// fails. CACHESHIM_LOCK_SEEDS sets the number of interleavings, CACHESHIM_LOCK_SEED the first seed.
namespace cacheshim::locks_model {
namespace {

constexpr std::size_t kSteps = 120;
constexpr std::array kLikely{
    ActionKind::kFlock,  ActionKind::kFlock,   ActionKind::kFlock,     ActionKind::kRecord,
    ActionKind::kRecord, ActionKind::kRecord,  ActionKind::kRecord,    ActionKind::kUnlock,
    ActionKind::kUnlock, ActionKind::kFind,    ActionKind::kFlush,     ActionKind::kRelease,
    ActionKind::kKill,   ActionKind::kRawLock, ActionKind::kRawUnlock, ActionKind::kInterrupt,
    ActionKind::kPass,   ActionKind::kTend,    ActionKind::kTend};

std::string describe(const Action& action) {
  constexpr std::array kWords{"flock",       "record", "unlock",    "find",     "flush",
                              "release",     "kill",   "interrupt", "raw lock", "raw unlock",
                              "close table", "pass",   "tend"};
  return std::string(kWords.at(static_cast<std::size_t>(action.kind))) + " process " +
         std::to_string(action.process) + " file " + std::to_string(action.file) + " number " +
         std::to_string(action.number);
}

std::vector<Action> random_actions(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Action> actions;
  for (std::size_t at = 0; at < kSteps; ++at) {
    const bool closes = random() % 60 == 0;
    const ActionKind kind =
        closes ? ActionKind::kCloseTable : kLikely.at(random() % kLikely.size());
    actions.push_back(
        {kind, random() % kProcesses, random() % kFiles, static_cast<unsigned>(random() % 128)});
  }
  return actions;
}

TEST(LocksModel, NoInterleavingGrantsConflictingLocksOrLeavesARequestWaiting) {
  const Scratch scratch;
  scratch.write("x.lock", "");
  Counters counters;
  const Runs runs{number_from("CACHESHIM_LOCK_SEED", 1), number_from("CACHESHIM_LOCK_SEEDS", 6000)};
  EXPECT_EQ(first_failure<Action>(
                runs, random_actions,
                [&](const std::vector<Action>& actions) {
                  return run(scratch / "x.lock", counters, actions);
                },
                describe),
            "");
}

}  // namespace
}  // namespace cacheshim::locks_model
