// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

// Checks whether a path, as the application wrote it, is a given prefix or is below it. Compares text only: no system
// call, no allocation.
namespace cacheshim {

struct PathMatch {
  bool matched = false;
  // Where the part after the prefix begins in the path: at a '/' or at the path's end.
  std::size_t rest = 0;
  // If ".." occurs before the prefix is complete, a component before the ".." may be a symlink. The match then holds
  // only if path[0, head) and prefix[0, same_as) are the same directory (the latter is the root directory if same_as is
  // 0). In all other cases, head is 0.
  std::size_t head = 0;
  std::size_t same_as = 0;
  // A path that leaves the prefix by ".." does not match. `left` is then the position at which that ".." ends, and
  // path[0, inside) is the part before it. That part leads to the prefix's directory, unless a component after the
  // prefix is a symlink. For all other paths, `left` is 0.
  std::size_t left = 0;
  std::size_t inside = 0;
};

// Requires: `prefix` is absolute and plain, and not "/".
PathMatch match_prefix(std::string_view path, std::string_view prefix);

// As match_prefix(), for a path that is known to begin with the prefix. The prefix ends at `rest`.
PathMatch match_rest(std::string_view path, std::size_t rest);

// Whether `path` has no "//", "." or "..". Such a path matches a prefix as plain text or not at
// all.
bool is_plain_path(std::string_view path);

// Takes the next component off `path`: skips '/' and ".", and returns "" at the end.
std::string_view take_next_component(std::string_view& path);

// Whether `text` is `prefix`, or begins with `prefix` and a '/'.
bool starts_with_directory(std::string_view text, std::string_view prefix);

// Writes `path` without "//", "." and trailing '/' into `out`. Returns the length, or 0 if the path
// is relative, contains "..", is "/" or does not fit with a final NUL.
std::size_t normalise_path(std::string_view path, char* out, std::size_t capacity);

}  // namespace cacheshim
