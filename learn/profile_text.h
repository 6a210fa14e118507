// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "learn/cache_facts.h"

namespace cacheshim::learn {

struct ProfileHead {
  std::string name;
  std::string variable;      // or ""
  std::string default_path;  // or ""
  std::string command;
  std::vector<std::string> notes;  // on the run itself
};

// The TOML text of a profile (docs/profiles.md) with evidence "guess": each part behind a comment on what was seen. What
// a guess may not have, or what would not work, is a comment too.
std::string profile_text(const ProfileHead& head, const CacheFacts& facts);

}  // namespace cacheshim::learn
