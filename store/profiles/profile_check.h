// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "store/profiles/profile.h"

// Finds the parts of a profile that a mount accepts although they cannot work, for `cacheshim
// profile check`.
namespace cacheshim {

// Returns all faults of the profile in the file `path`, one line each: "FILE:LINE: what, why".
std::vector<std::string> check_profile(const std::string& path);

// Reports each name, variable and default path that `profile` shares with one of `others`, because only one profile can
// use it. The line numbers refer to the file `profile.origin`.
std::vector<std::string> check_against(const Profile& profile, const std::vector<Profile>& others);

}  // namespace cacheshim
