// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/routing/router.h"

// The state of this process, and the interface through which the hooks use it.
//
// Problem: a hook runs in any thread, in signal handlers, between vfork and exec and before main, in programs that do
// not expect it. Solution: the constructor makes all decisions and stores them in static memory. After that, only two
// events change where paths lead, each by one atomic store: the mount is gone ("broken"), or the job turns out to
// belong to another user. The spellings that path_spelling.h records are only hints, each in one atomic variable.
// Invariant: a hook locks nothing, allocates only where libc's function allocates too, and leaves errno as libc would
// have. Cost: for a path outside all caches one check of its text (path_gate.h); for a routed path one copy into 4 KiB
// of stack.
namespace cacheshim {

enum class CallKind {
  kLookup,  // creates nothing; a failure is a valid result, unless the mount is gone
  // creates a name; a failure may mean that the mount is gone: after an unmount, the call fails, without effect, in the
  // directory that remains
  kCreate,
};

// A path and the directory that it is relative to, as the *at calls take them; AT_FDCWD for other
// calls.
struct PathAt {
  int dirfd;
  const char* path;
};

namespace runtime {

enum class State { kInactive, kActive, kBroken };

extern std::atomic<State> state;
extern Router router;

inline const Routes& routes() { return router.routes(); }

// Returns false only if route() would leave the path unchanged.
inline bool may_match(const char* path) { return path != nullptr && router.may_match(path); }

// Returns where the path leads now; kForeign for a null path. May change errno.
RoutedPath route(PathAt at, PathBuffer& out);

// Returns true if stat(2) finds the same object at both paths. May change errno.
bool same_directory(const char* a, const char* b);

// Returns the kernel's path of the directory `dirfd`, or of the working directory for AT_FDCWD;
// empty if it is unknown. May change errno.
std::string_view directory_of(int dirfd, PathBuffer& out);

// Call after a call on a path that is not kForeign has failed with `error`. Returns true if route() returns another
// path from now on:
// - if the mount is gone and Start::strict is not set, the default path, whose directory route() creates;
// - after EACCES, if the view belongs to another user, a path through the symlinks in the mount's
//   root, which the daemon resolves to a view of this process's user.
// In both cases, prints a line if neither this process nor an ancestor has printed one. May change errno.
bool fell_back(PathAt at, CallKind kind, int error);

// Whether `device` is the st_dev of the current mount's files. Returns false for a bound view.
// Async-signal-safe; may change errno.
bool is_device_of_mount(unsigned long device);

// The results of the constructor.
struct Start {
  unsigned long device = 0;  // st_dev of the mount's files
  bool strict = false;       // if true, never fall back to the default paths
  // The value of CACHESHIM_WARNED in the environment: '1' after a warning, otherwise '0'. Null if the
  // variable could not be set.
  char* warned = nullptr;
};
void activate(const Start& start);

}  // namespace runtime
}  // namespace cacheshim
