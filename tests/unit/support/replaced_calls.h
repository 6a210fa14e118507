// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

// Replacements of libc's functions in a test program, so that a test can act in the middle of a call of the code under
// test. replaced_calls.cc defines linkat(2), statx(2), fstatat(2) and utimensat(2) for the whole program.
namespace cacheshim {

// Code that runs instead of the next linkat(2), or before the next statx(2) or utimensat(2), of this thread.
extern thread_local std::function<int(const std::function<int()>& link)> on_link;
extern thread_local std::function<void()> before_statx;
extern thread_local std::function<void()> before_touch;
extern thread_local int stat_calls;  // of fstatat(2)

}  // namespace cacheshim
