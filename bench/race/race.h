// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "bench/race/rows.h"

namespace cacheshim::race {

struct Terms {
  unsigned processes = 1;
  double seconds = 0.4;  // the longest duration of a row without Row::to_the_end
  uint64_t seed = 0;
  std::vector<pid_t> daemons;  // the daemons that serve the tree
};

// All times are in seconds. `wall` and `own_cpu` cover only the steps. The other times also cover the start and the
// exit of the runners.
struct Outcome {
  uint64_t operations = 0;
  double wall = 0;
  double own_cpu = 0;     // CPU time of the runners
  double daemon_cpu = 0;  // CPU time of all threads of the daemons
  double other_cpu = 0;   // CPU time of all other processes; accurate to 10 ms per core
};

// Runs a row in `processes` processes that start together, and measures it. Throws
// std::invalid_argument for more than 256 processes, std::runtime_error if a runner failed (the
// runner has printed the reason on stderr), and std::system_error.
Outcome run_race(const Row& row, const Tree& tree, const Terms& terms);

}  // namespace cacheshim::race
