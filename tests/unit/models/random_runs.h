// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tests/parity/shrink.h"

// Runs random sequences of actions against a model.
namespace cacheshim {

inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Runs {
  std::uint64_t first_seed;
  std::uint64_t count;
};

// Returns "" if no sequence fails. Otherwise returns the seed, the fault, and the shortest sequence
// found that still fails. `run` returns the fault, or "" if there is none.
template <class Action>
std::string first_failure(const Runs& runs,
                          const std::function<std::vector<Action>(std::uint64_t seed)>& make,
                          const std::function<std::string(const std::vector<Action>&)>& run,
                          const std::function<std::string(const Action&)>& describe) {
  for (std::uint64_t seed = runs.first_seed; seed < runs.first_seed + runs.count; ++seed) {
    const std::vector<Action> actions = make(seed);
    if (run(actions).empty()) continue;
    const auto fewest = parity::shrink<Action>(
        actions, [&](const std::vector<Action>& fewer) { return !run(fewer).empty(); }, 2000);
    std::string text = "seed " + std::to_string(seed) + ": " + run(fewest);
    for (const Action& action : fewest) text += "\n  " + describe(action);
    return text;
  }
  return "";
}

}  // namespace cacheshim
