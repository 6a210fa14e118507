// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parity/side.h"

// The names that cases work on, each in one state of an overlay. A state is made in two steps: what
// the base holds before the mount, then what a job does through its view. The native directory gets
// both steps in turn, and so holds what the view must show.
namespace cacheshim::parity {

// Names whose last component is, for the caller, …
const std::vector<std::string>& file_names();     // a regular file
const std::vector<std::string>& directory_names();  // a directory
const std::vector<std::string>& absent_names();   // not there: each for another reason
const std::vector<std::string>& special_names();  // a symlink, or below something odd
const std::vector<std::string>& acl_names();      // with ACLs in the base; no part of the next
const std::vector<std::string>& all_names();      // all of these

// The first step, on a raw directory: makes what the names of a case need.
void make_base(int dir, const std::vector<std::string>& names);
// The second step, through the side.
void make_layer(Side& side, const std::vector<std::string>& names);

// Gives every file and directory below `dir` a time of the past, and its owner. Ends the program
// where that fails.
void settle(int dir, uid_t owner);

}  // namespace cacheshim::parity
