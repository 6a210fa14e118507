// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parity/side.h"

// The names that cases use, each in one state of an overlay. A state is created in two steps: first in the base, before
// the mount; then through a job's view. Both steps are also made in the native directory, so that it contains what the
// view must show.
namespace cacheshim::parity {

// Each function returns names. In the view, the last component of each of these names is:
const std::vector<std::string>& file_names();     // a regular file
const std::vector<std::string>& directory_names();  // a directory
const std::vector<std::string>& absent_names();   // absent, each for a different reason
const std::vector<std::string>& special_names();  // a symlink, or a name below an unusual parent
const std::vector<std::string>& acl_names();      // in the base, with ACLs or below ACLs
const std::vector<std::string>& all_names();      // all of the above except acl_names()

// The first step: creates the base objects that the names of a case need.
void make_base(int dir, const std::vector<std::string>& names);
// The second step: makes the changes to the names through the side.
void make_layer(Side& side, const std::vector<std::string>& names);

// Sets the owner, and times in the past, of all files and directories below `dir`. Exits on
// failure.
void settle(int dir, uid_t owner);

}  // namespace cacheshim::parity
