// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "common/job_id.h"

// What a program that is given an environment without LD_PRELOAD gets besides: this library and the
// CACHESHIM_* variables that this process was started with, so that `env -i` loses nothing. An
// empty LD_PRELOAD is one, and so is CACHESHIM_EXEC=leave: nothing is added then. CACHESHIM_FOLDER
// says in any child how the working directory was named (given_back.h).
namespace cacheshim::child_environment {

// Keeps what will be added; to be called once, before other threads are there. `warned` is an entry
// of the environment that stays.
void prepare(char* const* environment, const char* warned);

// Whether variables of ours are missing.
bool lacks_ours(char* const* environment);

// Returns whether LD_PRELOAD is missing in the environment while other variables of ours are there.
// Returns false in a forked child: the program that started it may have given it that environment.
bool has_dropped_library(char* const* environment);

// Whether LD_PRELOAD names this library, and not by a path that the loader completes.
bool names_library(char* const* environment);

enum class Library {
  kAsItIs,
  kAdded,    // and what else is ours
  kDropped,  // from LD_PRELOAD: the loader of the program could only complain of it
};

// What is to be put into an environment, and how much room that takes.
struct Change {
  Library library = Library::kAsItIs;
  const char* directory = nullptr;  // CACHESHIM_FOLDER; empty: to be taken away; null: as it is
  std::size_t pointers = 0;      // 0: nothing changes
  std::size_t bytes = 0;
};
// Both are async-signal-safe. `out` and `room` are as large as `change` says.
Change find_change(char* const* environment, Library library);
void apply_change(char* const* environment, const Change& change, char** out, char* room);

// Calls call(environment), changed on the stack where that is necessary.
template <class Call>
[[gnu::noinline]] auto call_with(char* const* environment, Library library, Call call) {
  const Change change = find_change(environment, library);
  if (change.pointers == 0) return call(environment);
  char** const changed = static_cast<char**>(__builtin_alloca(change.pointers * sizeof(char*)));
  char* const text = static_cast<char*>(__builtin_alloca(change.bytes));
  apply_change(environment, change, changed, text);
  return call(static_cast<char* const*>(changed));
}

// The value of `name` in an environment, or null. Unlike getenv it is no function that programs
// bring along (bash does).
const char* find_variable(char* const* environment, const char* name);

}  // namespace cacheshim::child_environment
