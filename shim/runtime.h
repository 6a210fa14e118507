// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/routing/router.h"

// The state of this process, and the interface of the hooks to it.
//
// Problem: a hook runs in any thread, in signal handlers, between vfork and exec and before main,
// on behalf of programs that do not know of it. Idea: the constructor decides everything and stores
// it in static memory. After that, the state changes only from "active" to "broken" (the mount is
// gone), by one atomic store; noted paths (given_back.h) are a hint in one word. Invariant: a hook
// allocates nothing, locks nothing, and leaves errno as libc would have. Cost: one check of the
// text of a path outside all caches (path_gate.h), or one copy of a routed path into 4 KiB of
// stack.
namespace cacheshim {

enum class CallKind {
  kLook,  // a failure is a valid result, unless the mount itself is gone
  // creates a name: fails without effect on a directory that once was the mount
  kCreate,
};

// A path as it is passed to the *at calls; AT_FDCWD for other calls.
struct PathAt {
  int dirfd;
  const char* path;
};

namespace runtime {

enum class State { kInactive, kActive, kBroken };

extern std::atomic<State> state;
extern Router router;

// Whether route() must be called at all.
inline bool may_match(const char* path) { return path != nullptr && router.may_match(path); }

// Returns the current route of the path; a null path is foreign. May change errno.
RoutedPath route(PathAt at, PathBuffer& out);

// Whether two names are one directory. May change errno.
bool same_directory(const char* a, const char* b);

// Returns the kernel's name of the directory that relative paths of `dirfd` start at; empty if it
// is unknown. May change errno.
std::string_view directory_of(int dirfd, PathBuffer& out);

// Call when a call on a path that is not kForeign has failed with `error`. Returns whether the
// mount is gone, so that route() now returns the default path, whose directory has been created.
// Prints one line, once. May change errno.
bool fell_back(PathAt at, CallKind kind, int error);

// Whether this is the st_dev of files of the current mount. Async-signal-safe; may change errno.
bool is_device_of_mount(unsigned long device);

// The constructor's results.
struct Start {
  unsigned long device = 0;  // st_dev of files of the mount
  bool strict = false;       // never fall back
  char* warned = nullptr;    // the value of CACHESHIM_WARNED in the environment: '1' once we warned
};
void activate(const Start& start);

}  // namespace runtime
}  // namespace cacheshim
