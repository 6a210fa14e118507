// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace cacheshim::parity {

struct Options {
  std::string native;         // the directory that tells the truth
  std::string view;           // the directory under test
  std::string view_as_given;  // {job} in it stands for the job of the process
  std::string base;           // prepare: the directory that the view will show as its base
  std::string filter = "*";   // fnmatch(3) pattern of case names
  uid_t owner = 0;            // prepare: who owns the native files
  unsigned seed = 1;
  unsigned first_round = 0;
  unsigned rounds = 20;
  unsigned actions = 400;      // in each round
  std::string script;          // a file with the steps of one round, instead of random ones
  unsigned attempt = 0;        // the number of a try to shrink a script; 0 is none
  bool keeps_owners = false;   // the view is mounted with owner=keep
  bool several_users = false;  // with the cases that need that, and root
  bool is_plain = false;       // the view is a plain directory too: nothing may differ
  bool verbose = false;
};

// Each returns the number of mismatches. They end the program where the directories cannot be used.
int prepare_cases(const Options& options);
int run_cases(const Options& options);
int prepare_model(const Options& options);
int run_model(const Options& options);
int prepare_data(const Options& options);
int run_data(const Options& options);

}  // namespace cacheshim::parity
