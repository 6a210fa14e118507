// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>

#include "shim/errno_guard.h"
#include "shim/runtime.h"
#include "shim/start/child_environment.h"

// Finds programs in a route. libc's search of PATH and the kernel's search for a script's interpreter bypass the hooks,
// so this code does both searches itself.
namespace cacheshim::command {

// Returns PATH, or execvp(3)'s default if PATH is not set.
const char* path_list();

// Whether a search for `file`, which contains no slash, in `directories` may lead into a route, or
// to a program whose environment we extend. May change errno.
bool search_is_ours(const char* file, const char* directories, char* const* environment);

// Calls attempt(candidate), which returns 0 or an errno, for `file` in each directory of
// `path_list`, as execvp(3) does. Returns 0 after a successful attempt, otherwise the errno that
// execvp(3) would leave.
template <class Attempt>
int search(const char* file, const char* path_list, Attempt attempt);

// The first line of a script, "#!/interpreter argument".
struct ScriptLine {
  char text[256];
  const char* interpreter = nullptr;
  const char* argument = nullptr;  // null if there is none
};
// Reads the first line of the file at `path`. Returns true if that line names an interpreter that
// may be in a route (runtime::may_match()). May change errno.
bool read_script_line(const char* path, ScriptLine& out);

// Whether the program at a path can load this library. A file that is not ELF, is unreadable or is
// static counts as kLoads, because it may start other programs. May change errno.
enum class Fit {
  kLoads,
  kOtherLibc,     // can load the library, which has no effect there
  kOtherMachine,  // its loader would print an error instead of loading the library
};
Fit fit_of(PathAt at);

// Decides what to do with this library in the environment of the program at a path: add it if LD_PRELOAD is missing and
// the program can load it, remove it if the program's loader could only print an error, or leave it as it is.
inline child_environment::Library library_for(PathAt at, char* const* environment) {
  using child_environment::Library;
  const ErrnoGuard errno_guard;
  if (child_environment::lacks_ours(environment)) {
    return fit_of(at) == Fit::kLoads ? Library::kAdded : Library::kAsItIs;
  }
  if (!child_environment::names_library(environment)) return Library::kAsItIs;
  return fit_of(at) == Fit::kOtherMachine ? Library::kDropped : Library::kAsItIs;
}

// Calls call(environment) for the program at a path, with the environment for a child of this
// process.
template <class Call>
auto call_for_child(PathAt at, char* const* environment, Call call) {
  return child_environment::call_with(environment, library_for(at, environment), call);
}

// Returns true if the program at a path is this process's own, and the process has removed
// LD_PRELOAD from its environment. Such a program restarts itself to run without preloaded
// libraries: if ours were added again, it would restart itself forever.
bool is_restart_without_library(PathAt at, char* const* environment);

// As call_for_child(), for the program that replaces this one.
template <class Call>
auto call_with_environment(PathAt at, char* const* environment, Call call) {
  if (!is_restart_without_library(at, environment)) return call_for_child(at, environment, call);
  return child_environment::call_with(environment, child_environment::Library::kAsItIs, call);
}

// Writes the next path of a search for `file` in PATH to `out`. Advances `path_list` past the
// directory of this path, or sets it to null after the last one. Returns false if the path is too
// long for `out`.
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
