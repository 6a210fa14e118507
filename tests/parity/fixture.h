// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/parity/side.h"

// The names that cases use, each in one state of an overlay. A state is created in two steps: what
// the base contains before the mount, then what a job does through its view. In the native
// directory both steps are performed, so that it contains what the view must show.
namespace cacheshim::parity {

// Names whose last component is, for the caller, …
const std::vector<std::string>& file_names();     // a regular file
const std::vector<std::string>& directory_names();  // a directory
const std::vector<std::string>& absent_names();   // absent, each for another reason
const std::vector<std::string>& special_names();  // a symlink, or a name below an unusual parent
const std::vector<std::string>& acl_names();      // with ACLs in the base; not in all_names()
const std::vector<std::string>& all_names();      // all of the above

// The first step, in the underlying directory: makes what the names of a case need.
void make_base(int dir, const std::vector<std::string>& names);
// The second step, through the side.
void make_layer(Side& side, const std::vector<std::string>& names);

// Sets a time in the past and the owner of every file and directory below `dir`. Exits on failure.
void settle(int dir, uid_t owner);

}  // namespace cacheshim::parity
