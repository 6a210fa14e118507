// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// What the names of one run say of those of another: which parts stay, and which are chosen anew each time. Pure.
namespace cacheshim::learn {

// The name as a pattern that matches it alone.
std::string literal(std::string_view name);

// Where the part that looks like a key ends: a UUID, 8 hexadecimal digits or 16 letters and digits. Nothing without one.
std::optional<std::size_t> end_of_key(std::string_view name);

// Whether it looks like a level that spreads keys over directories: one or two hexadecimal digits.
bool is_fan_out(std::string_view name);

struct TemporaryName {
  std::string name;
  std::string final_name;  // that it was renamed to, or ""
};

// A pattern of temporary names like this one. '*' stands for its final name and for process ids, which are the numbers
// among `threads` and all others of three digits or more; '?' for each character of a UUID, of a long hexadecimal
// number, and of the random part of mkstemp(3), of Python's tempfile and of the like.
std::string shape_of(const TemporaryName& temporary, const std::set<pid_t>& threads);

// The shapes of all of them, each once. Shapes that differ in one part are one.
std::vector<std::string> shapes_of(const std::vector<TemporaryName>& names,
                                   const std::set<pid_t>& threads);

// A pattern for all of the names: what they begin and end with, or one of them if they are all equal. Nothing if they
// have no beginning and no ending in common: a beginning that is a key is none, nor is an ending without a '.', '_'
// or '-' in it.
std::optional<std::string> common_pattern(const std::set<std::string>& names);

}  // namespace cacheshim::learn
