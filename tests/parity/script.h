// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parity/runner.h"

// A random round as text, one step per line: a failure writes it, and it can be run again.
namespace cacheshim::parity {

struct Script {
  unsigned seed = 0;  // with `round`, determines the content of the base
  unsigned round = 0;
  std::vector<std::string> steps;
};

// Reads or writes a file whose first line contains the seed and the round. Both exit on an error.
Script read_script(const std::string& path);
void write_script(const Script& script, const std::string& path);

// Returns options that prepare or run only the script, if one is given; otherwise the options
// themselves.
Options for_script(const Options& options);

// Runs a failed script of the command `run` repeatedly with fewer steps, and prints the shortest
// one that still fails, with its output. Each attempt is a process of another job, so that its view
// begins from the base. Its number is a part of the name of its native directory.
void shrink_and_print(const Options& options, const std::string& run, Script script);

// Returns a directory of a round. An attempt has its own native directories, which it makes itself,
// and also its own views if the view is a plain directory; otherwise its view is that of its own
// job.
std::string native_directory(const Options& options, const char* kind, unsigned round);
std::string view_directory(const Options& options, const char* kind, unsigned round);

}  // namespace cacheshim::parity
