// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/routing/router.h"

// The state of this process, and what the hooks ask of it.
//
// Problem: a hook runs in any thread, in signal handlers, between vfork and exec and before main,
// on behalf of programs that know nothing of it. Idea: everything is decided in the constructor, in
// static memory; from then on the state only ever changes from "active" to "broken" (the mount is
// gone), by one atomic store, and what is remembered (given_back.h) is a hint in one word.
// Invariant: a hook allocates nothing, locks nothing, and leaves errno as libc would have. Cost: a
// path that is not ours costs one look at its text (path_gate.h); one that is costs one copy into 4
// KiB of stack.
namespace cacheshim {

enum class CallKind {
  kLook,  // a failure is an answer, unless the mount itself says that it is gone
  // makes a name: on a directory that once was the mount it fails, and nothing is lost by that
  kCreate,
};

// A path as it is given to the *at calls; AT_FDCWD for the others.
struct PathAt {
  int dirfd;
  const char* path;
};

namespace runtime {

enum class State { kInactive, kActive, kBroken };

extern std::atomic<State> state;
extern Router router;

// Whether route() has to be asked at all.
inline bool may_match(const char* path) { return path != nullptr && router.may_match(path); }

// Where the path goes now; a null path is foreign. May change errno.
RoutedPath route(PathAt at, PathBuffer& out);

// Whether two names are one directory. May change errno.
bool same_directory(const char* a, const char* b);

// The kernel's name of the directory that relative paths of `dirfd` start at; empty where that
// cannot be told. May change errno.
std::string_view folder_of(int dirfd, PathBuffer& out);

// To be asked when a call on a path that is not kForeign has failed with `error`: whether the mount
// is gone, so that route() now answers with the default path, whose directory has been made. Says
// so by one line, once. May change errno.
bool fell_back(PathAt at, CallKind kind, int error);

// Whether this is the st_dev of the files of what is mounted now.
// Async-signal-safe; may change errno.
bool is_device_of_mount(unsigned long device);

// What the constructor has found, for the time after it.
struct Start {
  unsigned long device = 0;  // st_dev of files of the mount
  bool strict = false;       // never fall back
  char* warned = nullptr;    // the value of CACHESHIM_WARNED in the environment: '1' once we warned
};
void activate(const Start& start);

}  // namespace runtime
}  // namespace cacheshim
