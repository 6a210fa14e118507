// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// Finds out, from the names of one run, which parts of names are constant and which parts each run
// chooses. Pure.
namespace cacheshim::learn {

// Returns a pattern for this name alone, except that '?' stands for each character that is not
// printable ASCII.
std::string literal(std::string_view name);

// Returns the end of the first part of `name` that looks like a key: a run of at least 8 lower-case
// hexadecimal digits, or of at least 16 letters and digits, with at least one digit. Returns
// nothing if there is no such part.
std::optional<std::size_t> end_of_key(std::string_view name);

// Whether the name looks like a level that spreads keys over directories: one or two hexadecimal
// digits.
bool is_fan_out(std::string_view name);

struct TemporaryName {
  std::string name;
  std::string final_name;  // the new name, or ""
};

// Returns a pattern that matches similar temporary names. '*' stands for the final name, for a
// hexadecimal number of more than 40 digits, and for process ids: the numbers among `threads`, and
// all others of three digits or more that are not part of a word. '?' stands for each hexadecimal
// digit of a UUID or of a number of 16 to 40 such digits, and for each character of the random part
// that mkstemp(3), Python's tempfile and similar functions make.
std::string shape_of(const TemporaryName& temporary, const std::set<pid_t>& threads);

// Returns the shapes of the first 2000 names, each once. Merges shapes that differ in only one
// part.
std::vector<std::string> shapes_of(const std::vector<TemporaryName>& names,
                                   const std::set<pid_t>& threads);

// Returns a pattern for all of the names: their common beginning and ending, or the name itself if
// there is only one and it has no key. A beginning must end with '.', '_' or '-', and an ending
// must begin with one of these. Ignores a beginning with a key. Returns nothing if the names have
// neither.
std::optional<std::string> common_pattern(const std::set<std::string>& names);

}  // namespace cacheshim::learn
