// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/cuda/fake_driver.h"

// The client programs share this file. Each of them runs the same scenario, but finds the driver's
// functions in a different way.
namespace cacheshim::test {

// The driver's functions, as one client program has found them.
struct Api {
#define CACHESHIM_TEST_FUNCTION(name) decltype(&::name) name = nullptr;
#include "tests/cuda/functions.def"
#undef CACHESHIM_TEST_FUNCTION
};

struct Scenario {
  // The function that loads the tail kernel, for example "cuModuleLoadData"
  std::string load;
  std::string image_file;  // its content is "tail;other"
  // The value to which the program sets CUDA_MODULE_LOADING before cuInit; may be empty
  std::string set_mode;
  bool spins = true;  // false: no spin kernel, and none of the steps that follow it
};

// Returns the program's exit status: 0 if the scenario passes, 3 if it deadlocks. Exits with status 2 on a driver
// error, and with status 4 if the scenario hangs. Prints the loading mode that the driver reports.
int run_scenario(const Api& api, const Scenario& scenario);

// Parses the command line: LOAD FILE [--set MODE] [--no-spin]
Scenario read_scenario(int argc, char** argv);

}  // namespace cacheshim::test
