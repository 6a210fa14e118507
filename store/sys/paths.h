// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// Paths below a root, in the store's format: no "/" at either end, no "." and "..", "" for the root
// itself.
namespace cacheshim {

// parent_path() returns the parent directory of `path`, "" for a name in the root. base_name()
// returns the last component.
std::string_view parent_path(std::string_view path);
std::string_view base_name(std::string_view path);
// Either part may be empty; the result is then the other one.
std::string join_path(std::string_view directory, std::string_view name);
// Removes the first component of `path` and returns it.
std::string_view take_component(std::string_view& path);

}  // namespace cacheshim
