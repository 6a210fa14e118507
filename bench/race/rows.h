// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/race/tree.h"

namespace cacheshim::race {

// One of the processes that run a row together.
struct Runner {
  const Tree& tree;
  unsigned index;  // 0 to count - 1
  unsigned count;
  uint64_t seed;  // generates names that are new in this run
};

// Performs one operation. Returns false if this runner has nothing left to do. Throws
// std::system_error if a call fails, and std::runtime_error if its result is wrong.
using Step = std::function<bool()>;

// A row of the race. Only its steps are measured.
struct Row {
  const char* name;
  // Prepares the row, once for all runners. The preparation is not measured.
  void (*warm_up)(const Tree&);
  Step (*make_step)(const Runner&);
  // If true, the row runs until its steps have nothing left to do; otherwise, a fixed time also ends it.
  bool to_the_end;
};

// Returns null for an unknown name.
const Row* find_row(const std::string& name);

}  // namespace cacheshim::race
