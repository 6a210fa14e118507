// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "tests/hostile/attacker/world.h"

namespace attacker {

// The call that a process is making. The parent process reads this structure in shared memory.
struct Progress {
  std::atomic<std::int64_t> since_ms;        // the start of the call (CLOCK_MONOTONIC)
  std::array<std::atomic<char>, 32> name{};  // of the call
};

std::int64_t now_ms();

// Repeatedly interrupts this process's calls with a signal, so that no lock request waits for long.
void interrupt_regularly(Random& random);

// Makes `calls` random calls below `mount`, and exits.
[[noreturn]] void live(const std::string& mount, std::uint64_t seed, int calls, Progress& progress);

}  // namespace attacker
