// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "common/job_id.h"

// What a program that is given an environment without LD_PRELOAD gets besides: this library and the
// CACHESHIM_* variables that this process was started with, so that `env -i` loses nothing. An empty
// LD_PRELOAD is one, and so is CACHESHIM_EXEC=leave: nothing is added then.
namespace cacheshim::child_environment {

// Keeps what will be added; to be called once, before other threads are there. `warned` is an entry
// of the environment that stays.
void prepare(char* const* environment, const char* warned);

// How many pointers fill() needs, or 0 where `environment` is to be passed as it is. Both are
// async-signal-safe and change nothing but `out`.
std::size_t size_with_ours(char* const* environment);
void fill(char* const* environment, char** out);

// Calls call(environment), with our entries added on the stack where they are missing.
template <class Call>
[[gnu::noinline]] auto call_with(char* const* environment, Call call) {
  const std::size_t size = size_with_ours(environment);
  if (size == 0) return call(environment);
  char** const added = static_cast<char**>(__builtin_alloca(size * sizeof(char*)));
  fill(environment, added);
  return call(static_cast<char* const*>(added));
}

// The value of `name` in an environment, or null. Unlike getenv it is no function that programs
// bring along (bash does).
const char* find_variable(char* const* environment, const char* name);

}  // namespace cacheshim::child_environment
