// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/cuda/fake_driver.h"

// The programs of the matrix: the same scenario by every route to the driver.
namespace cacheshim::test {

// The driver's functions as one route gave them.
struct Api {
#define CACHESHIM_TEST_FUNCTION(name) decltype(&::name) name = nullptr;
#include "tests/cuda/functions.def"
#undef CACHESHIM_TEST_FUNCTION
};

struct Scenario {
  std::string load;        // the function that loads the tail kernel, as "cuModuleLoadData"
  std::string image_file;  // holds "tail;other"
  std::string set_mode;  // what the program sets CUDA_MODULE_LOADING to before cuInit; may be empty
  bool spins = true;     // without: everything but the spin kernel and what follows it
};

// The exit codes of the demo: 0 passed, 3 dead-locked, 2 a driver error. Prints the mode that the
// driver answers. A watchdog ends the process by 4.
int run_scenario(const Api& api, const Scenario& scenario);

// What the command line says: LOAD FILE [--set MODE] [--no-spin]
Scenario read_scenario(int argc, char** argv);

}  // namespace cacheshim::test
