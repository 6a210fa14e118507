// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/path_components.h"

// Paths below a root, in the store's format: no "/" at either end, no "." or ".." component, "" for
// the root itself.
namespace cacheshim {

// parent_path() returns the parent directory of `path`, "" for a name in the root. base_name()
// returns the last component.
std::string_view parent_path(std::string_view path);
std::string_view base_name(std::string_view path);
// Either part may be empty; the result is then the other part.
std::string join_path(std::string_view directory, std::string_view name);
// Whether `path` is `top` or below it.
bool is_at_or_below(std::string_view path, std::string_view top);

// The maximum length of an object's path in a view. A job can make deeper trees than PATH_MAX allows,
// because it may use paths relative to its working directory. Twice PATH_MAX is enough for every
// relative path that starts at a directory with an absolute path of at most PATH_MAX. The bound keeps
// each path that the daemon stores or builds short, and the trees that it walks shallow.
inline constexpr std::size_t kMostPathBytes = 8191;

// Whether a path is too long or too deep for the base, where every user must be able to open each
// file by an absolute path. The daemon neither publishes a file with such a path nor creates a lock
// file there.
inline constexpr std::size_t kMostBaseDepth = 128;  // components
inline constexpr std::size_t kMostBasePathBytes = 3072;
bool is_too_deep_for_base(std::string_view path);

}  // namespace cacheshim
