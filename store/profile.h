// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

// What is known of one cache family, read from one TOML file. Nothing of a family is known to C++.
namespace cacheshim {

struct Profile {
  std::string name;                          // folder name in the store and under the mount
  std::string variable;                      // environment variable that moves the cache, or empty
  std::vector<std::string> unless;           // variables that, when set, mean: leave it alone
  std::vector<std::string> default_paths;    // "~/.triton/cache"
  unsigned entry_depth = 1;                  // an entry is a folder this many levels below the name
  std::vector<std::string> scratch;          // fnmatch(3) patterns of names never published
  std::vector<std::string> complete;         // a file of this name completes its entry
  std::vector<std::string> complete_single;  // so does this one, as the entry's only file
  std::vector<std::string> paths_in;         // JSON files of these names hold absolute paths
  std::string evidence;                      // "run", "read", "doc" or "guess"

  bool is_scratch(std::string_view file_name) const;
  bool completes(std::string_view file_name) const;
  bool completes_alone(std::string_view file_name) const;
  bool holds_paths(std::string_view file_name) const;
};

// Where and why a profile was refused: "FILE:LINE: reason".
struct ProfileError {
  std::string message;
};

// Parses the text of one profile. `origin` is the file name used in messages.
// Unknown keys, missing names, values of a wrong type and unknown evidence are errors.
std::variant<Profile, ProfileError> parse_profile(std::string_view text, std::string_view origin);

struct ProfileSet {
  std::vector<Profile> profiles;      // sorted by name; a later folder's profile replaces
  std::vector<ProfileError> refused;  // the others go on without these
};

// Reads *.toml of every folder in turn; a folder that does not exist counts as empty.
// A profile from a later folder replaces one of the same name.
ProfileSet load_profiles(const std::vector<std::string>& folders);

// The flat table of all default paths (common/route_table.h) as bytes.
std::string compile_routes(const std::vector<Profile>& profiles);

}  // namespace cacheshim
