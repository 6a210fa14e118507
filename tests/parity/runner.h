// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace cacheshim::parity {

struct Options {
  std::string native;         // the directory with the correct behavior
  std::string view;           // the directory under test
  std::string view_as_given;  // `view`, before {job} was replaced by the process's job
  std::string base;           // prepare: the directory that the view shows as its base
  std::string filter = "*";   // fnmatch(3) pattern of case names
  // Prepare: the owner of the native files and, with keeps_owners, of the base's files.
  uid_t owner = 0;
  unsigned seed = 1;
  unsigned first_round = 0;
  unsigned rounds = 20;
  unsigned actions = 400;      // the number of actions in each round
  std::string script;          // a file with the steps of one round, used instead of random steps
  unsigned attempt = 0;        // the number of this attempt to shrink a script; 0: no attempt
  bool keeps_owners = false;   // the view is mounted with owner=keep
  bool several_users = false;  // includes the cases that need owner=keep and root
  bool is_plain = false;       // the view is a plain directory too, so nothing may differ
  bool verbose = false;
};

// Each function returns the number of mismatches, and exits if it cannot use the directories.
int prepare_cases(const Options& options);
int run_cases(const Options& options);
int prepare_model(const Options& options);
int run_model(const Options& options);
int prepare_data(const Options& options);
int run_data(const Options& options);

}  // namespace cacheshim::parity
