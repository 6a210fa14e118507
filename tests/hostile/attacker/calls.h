// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "tests/hostile/attacker/world.h"

namespace attacker {

// A system call, or a short series of calls, with random arguments. The results do not matter.
struct Call {
  const char* name;
  void (*run)(World&);
};

std::span<const Call> name_calls();  // change or read the tree
std::span<const Call> file_calls();  // read, write or lock open files
std::span<const Call>
group_calls();  // series: builds of entries, requests to the daemon, other processes

}  // namespace attacker
