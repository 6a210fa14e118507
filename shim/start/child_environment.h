// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "common/job_id.h"

// Extends the environment of a program that starts without LD_PRELOAD: adds this library, the CACHESHIM_* variables
// that this process was started with, and CACHESHIM_HOME. So, for example, programs started by `env -i` still use the
// library. Adds nothing if LD_PRELOAD is set but empty, or if CACHESHIM_EXEC=leave is set. If the child starts in a
// default path or below it, CACHESHIM_DIRECTORY contains this default path (path_spelling.h).
namespace cacheshim::child_environment {

// Stores the additions. Call once, before other threads exist. `warned`: the entry CACHESHIM_WARNED,
// or null. The function keeps the pointer, so the entry must remain valid while the process lives.
void prepare(char* const* environment, const char* warned);

// Returns true if the environment lacks LD_PRELOAD, and CACHESHIM_EXEC does not forbid adding our
// variables. Returns true for null, as Linux treats null as an empty environment. Before prepare(),
// or if prepare() has stored nothing, returns false.
bool lacks_ours(char* const* environment);

// Returns true if this process has removed LD_PRELOAD from the environment: LD_PRELOAD is missing,
// but the last of our other variables is there. Returns false in a forked child, because the parent
// may have prepared that environment for it.
bool has_dropped_library(char* const* environment);

// Whether LD_PRELOAD in `environment` names this library by a path without dynamic string tokens such as $LIB
// (ld.so(8)). Returns false if CACHESHIM_EXEC=leave is set in `environment`.
bool names_library(char* const* environment);

enum class Library {
  kAsItIs,
  kAdded,  // this library and our other variables are added
  // This library is removed from LD_PRELOAD: the child (for example, a 32-bit program) cannot load it.
  kDropped,
};

// The change to an environment, and the space that it takes.
struct Change {
  Library library = Library::kAsItIs;
  const char* directory = nullptr;  // the new CACHESHIM_DIRECTORY; "" removes it; null leaves it unchanged
  std::size_t pointers = 0;      // 0 if nothing changes
  std::size_t bytes = 0;
};
// find_change() computes the change. apply_change() writes the changed environment to `out`, which
// has space for `change.pointers` pointers, and the new strings to `room`, which has space for
// `change.bytes` bytes. Both functions are async-signal-safe.
Change find_change(char* const* environment, Library library);
void apply_change(char* const* environment, const Change& change, char** out, char* room);

// Calls call(environment), with an environment that is changed on the stack if necessary.
template <class Call>
[[gnu::noinline]] auto call_with(char* const* environment, Library library, Call call) {
  const Change change = find_change(environment, library);
  if (change.pointers == 0) return call(environment);
  char** const changed = static_cast<char**>(__builtin_alloca(change.pointers * sizeof(char*)));
  char* const text = static_cast<char*>(__builtin_alloca(change.bytes));
  apply_change(environment, change, changed, text);
  return call(static_cast<char* const*>(changed));
}

// Returns the value of `name` in an environment, or null. Programs such as bash replace getenv, but
// not this function.
const char* find_variable(char* const* environment, const char* name);

}  // namespace cacheshim::child_environment
