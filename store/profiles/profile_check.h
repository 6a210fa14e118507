// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "store/profiles/profile.h"

// Finds faults in profiles that a mount accepts but that cannot work, for `cacheshim profile
// check`.
namespace cacheshim {

// Returns every fault of the profile in a file, one line each, "FILE:LINE: what, why"; none if the
// profile is good.
std::vector<std::string> check_profile(const std::string& path);

// Returns the names, variables and default paths that `profile`, read from its origin, shares with
// one of `others`, although only one profile can have them.
std::vector<std::string> check_against(const Profile& profile, const std::vector<Profile>& others);

}  // namespace cacheshim
