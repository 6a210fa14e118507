// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "remote/entry_object.h"

// The rules for the values of a manifest. A reader must not trust the writer of an object, and the writer refuses what
// no reader accepts, so both use these functions. They are thread-safe and throw only std::bad_alloc.
namespace cacheshim::remote {

// The mode bits that a file in a manifest may have.
inline constexpr mode_t kPermissions = 0777;

// Returns whether a path belongs to the entry.
using IsPart = std::function<bool(const std::string& path)>;
using Problem = std::optional<ObjectRefusal>;

// Returns which rule the manifest breaks; nothing if it breaks none.
Problem problem_of(const Manifest& manifest, const IsPart& is_part, const ObjectLimits& limits);
// As problem_of(), for a path or the target of a symlink.
Problem problem_of_path(const std::string& path, const ObjectLimits& limits);

// The order of paths in a manifest. '/' comes before all other characters, so that the paths below a path directly
// follow it. No path contains a NUL byte.
bool is_before(std::string_view left, std::string_view right);

// Returns the name in single quotes and without characters that are not printable, for error messages.
std::string in_quotes(std::string_view name);

}  // namespace cacheshim::remote
