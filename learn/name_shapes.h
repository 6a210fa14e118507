// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// Determines, from the names of one run, which parts of names are constant and which parts differ from run to run.
// Pure.
namespace cacheshim::learn {

// Returns a pattern that matches only this name, except that '?' replaces each space and each byte
// that is not printable ASCII.
std::string literal(std::string_view name);

// Returns the end of the first part of `name` that looks like a key. A part is a sequence of letters and digits. It
// looks like a key if it has at least one digit and consists of at least 16 characters, or of at least 8 lower-case
// hexadecimal digits. Returns nothing if no part looks like a key.
std::optional<std::size_t> end_of_key(std::string_view name);

// Whether this can be the name of a fan-out directory, such as `ab` in git's `objects/ab/`: one or two lower-case
// hexadecimal digits.
bool is_fan_out(std::string_view name);

struct TemporaryName {
  std::string name;
  std::string final_name;  // the name to which it was renamed; "" if it was not
};

// Returns a pattern that matches this temporary name and similar ones:
//   - '*' replaces the final name, a hexadecimal number of more than 40 digits, and a process id. A process id is a
//     number in `threads`, or any number of three or more digits that is not part of a word.
//   - '?' replaces each digit of a UUID and of a hexadecimal number of 16 to 40 digits, and each
//     character of the random part that mkstemp(3), Python's tempfile and similar functions make.
//     It also replaces spaces, control characters, '[' and '\'.
std::string shape_of(const TemporaryName& temporary, const std::set<pid_t>& threads);

// Returns the shapes of the first 2000 names, each once. Merges shapes that differ in only one
// part.
std::vector<std::string> shapes_of(const std::vector<TemporaryName>& names,
                                   const std::set<pid_t>& threads);

// Returns a pattern for all of the names: their common beginning and ending with '*' between them or, if there is only
// one name and it has no key, that name. Cuts the beginning off after its last '.', '_' or '-', and starts the ending
// at its first one. Ignores a beginning that contains a key, or no letter or digit. Returns nothing if neither a
// beginning nor an ending remains.
std::optional<std::string> common_pattern(const std::set<std::string>& names);

}  // namespace cacheshim::learn
