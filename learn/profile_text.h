// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "learn/cache_facts.h"

namespace cacheshim::learn {

struct ProfileHead {
  std::string name;
  std::string variable;      // "" if there is none
  std::string default_path;  // "" if there is none
  std::string command;
  std::vector<std::string> notes;  // remarks about the run itself
};

// Returns the TOML text of a profile (docs/profiles.md) with evidence "guess". Before each part is a comment with the
// observation that supports it. The `flight` names are commented out, because a profile with evidence "guess" may not
// have them.
std::string profile_text(const ProfileHead& head, const CacheFacts& facts);

}  // namespace cacheshim::learn
