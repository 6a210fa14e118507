// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/profiles/profile.h"

// Profiles in the daemon's format for clients (docs/control.md, `profiles`).
namespace cacheshim {

// Returns a JSON array of objects. Each has the keys of a profile's file, and `file`, the file's path.
std::string profiles_to_json(const std::vector<Profile>& profiles);

// Returns nothing for text that is not an array of profiles. For a missing key, keeps the default
// of Profile or EntryRule. Skips unknown keys.
std::optional<std::vector<Profile>> profiles_from_json(std::string_view text);

}  // namespace cacheshim
