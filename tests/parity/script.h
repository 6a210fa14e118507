// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parity/runner.h"

// A random round as text, a step a line: what a failure leaves behind, and what can be run again.
namespace cacheshim::parity {

struct Script {
  unsigned seed = 0;  // with the round: what the base holds
  unsigned round = 0;
  std::vector<std::string> steps;
};

// Reads or writes a file whose first line names seed and round. Both end the program on an error.
Script read_script(const std::string& path);
void write_script(const Script& script, const std::string& path);

// Options that prepare or run a script alone, where one is given; else the options themselves.
Options for_script(const Options& options);

// Runs a failed script of the command `run` again and again with fewer steps, and prints the
// shortest that still fails, with what it shows. Each try is a process of another job, so that its
// view begins from the base, and has a number, by which its native directory is named.
void shrink_and_print(const Options& options, const std::string& run, Script script);

// The directories of a round. A try has native ones of its own, made by itself, and where the view
// is a plain directory also such views; elsewhere its view is that of its own job.
std::string native_directory(const Options& options, const char* kind, unsigned round);
std::string view_directory(const Options& options, const char* kind, unsigned round);

}  // namespace cacheshim::parity
