// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// Paths below a root, as the store's logic spells them: no "/" at either end, no "." and "..", ""
// for the root itself.
namespace cacheshim {

// The folder that holds `path`, "" for one in the root; and its last component.
std::string_view parent_path(std::string_view path);
std::string_view base_name(std::string_view path);
// Either part may be empty, which leaves the other.
std::string join_path(std::string_view folder, std::string_view name);
// Takes the first component off `path` and returns it.
std::string_view take_component(std::string_view& path);

}  // namespace cacheshim
