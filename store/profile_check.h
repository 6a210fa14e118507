// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "store/profile.h"

// What `cacheshim profile check` finds beyond what a mount refuses: profiles that are read, but cannot work.
namespace cacheshim {

// Everything that is wrong with the profile in a file, a line each, "FILE:LINE: what, why"; none where it
// is good.
std::vector<std::string> check_profile(const std::string& path);

// What `profile`, read from its origin, shares with one of `others` though only one of them can have it: a
// name, a variable or a default path.
std::vector<std::string> check_against(const Profile& profile, const std::vector<Profile>& others);

}  // namespace cacheshim
