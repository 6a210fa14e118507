// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>

#include "shim/router.h"

// What libc and the kernel do to find a program, for those that lie in a route: they look by
// themselves, where nothing can be routed any more.
namespace cacheshim::command {

// Whether a search for `file` in `path_list` (PATH; null for none) may lead into a route.
bool search_is_routed(const char* file, const char* path_list);

// Calls attempt(candidate), which gives 0 or an errno, for `file` in each folder of `path_list` as
// execvp(3) does, and returns what it would leave in errno.
template <class Attempt>
int search(const char* file, const char* path_list, Attempt attempt);

// The first line of a script, "#!/interpreter argument".
struct ScriptLine {
  char text[256];
  const char* interpreter = nullptr;
  const char* argument = nullptr;  // or null
};
// Reads the first line of the file at `path`; false unless it names an interpreter in a route. May
// change errno.
bool read_script_line(const char* path, ScriptLine& out);

// Writes one candidate of a search and moves `path_list` behind it; false where that does not fit.
bool next_candidate(const char*& path_list, const char* file, PathBuffer& out);

template <class Attempt>
int search(const char* file, const char* path_list, Attempt attempt) {
  int refused = 0;
  int error = ENOENT;
  while (path_list != nullptr) {
    PathBuffer candidate;
    if (!next_candidate(path_list, file, candidate)) continue;
    error = attempt(candidate.text);
    switch (error) {
      case EACCES:
        refused = EACCES;
        break;
      case ENOENT:
      case ESTALE:
      case ENOTDIR:
      case ENODEV:
      case ETIMEDOUT:
        break;
      default:
        return error;
    }
  }
  return refused != 0 ? refused : error;
}

}  // namespace cacheshim::command
