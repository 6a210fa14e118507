// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>

#include "shim/child_environment.h"
#include "shim/errno_guard.h"
#include "shim/runtime.h"

// What libc and the kernel do to find a program, for those that lie in a route: they look by
// themselves, where nothing can be routed any more.
namespace cacheshim::command {

// PATH, or what execvp(3) uses without one.
const char* path_list();

// Whether a search for `file`, which holds no slash, in `folders` may lead into a route, or to a
// program whose environment we add to. May change errno.
bool search_is_ours(const char* file, const char* folders, char* const* environment);

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

// Whether the program at a path can load this library: not one of another architecture or of another
// libc, whose loader would complain. What is no ELF file, cannot be read or is static counts as one
// that can: it may start others. May change errno.
bool can_preload(PathAt at);

// Calls call(environment) for the program at a path, with ours added where that is missing and of use.
template <class Call>
auto call_with_environment(PathAt at, char* const* environment, Call call) {
  bool add_ours = false;
  if (child_environment::lacks_ours(environment)) {
    const ErrnoGuard errno_guard;
    add_ours = can_preload(at);
  }
  return child_environment::call_with(environment, add_ours, call);
}

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
