// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parity/runner.h"

// A random round as text, one step per line. After a failure, it is printed and can be run again.
namespace cacheshim::parity {

struct Script {
  unsigned seed = 0;  // with `round`, determines the content of the base
  unsigned round = 0;
  std::vector<std::string> steps;
};

// Read and write a script file, whose first line contains the seed and the round. Exit on an error.
Script read_script(const std::string& path);
void write_script(const Script& script, const std::string& path);

// If the options name a script, returns options for its seed and round only; otherwise returns
// `options`.
Options for_script(const Options& options);

// Shortens a script with which the command `run` has failed: attempts `run` with fewer and fewer of the script's steps,
// and prints the shortest script found that still fails, with the output of that attempt. Does nothing if this process
// is itself an attempt, or if the user has passed the script. Each attempt is a process with a separate job, so its
// view starts from the base. The attempt's number is part of the name of its native directory.
void shrink_and_print(const Options& options, const std::string& run, Script script);

// Return the directories of a round. An attempt has separate native directories, which it creates itself. It uses the
// view of its own job or, if the view is a plain directory, a separate directory.
std::string native_directory(const Options& options, const char* kind, unsigned round);
std::string view_directory(const Options& options, const char* kind, unsigned round);

}  // namespace cacheshim::parity
