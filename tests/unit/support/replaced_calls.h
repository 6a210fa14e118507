// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

// Replaces libc's functions linkat(2), statx(2), fstatat(2) and utimensat(2) in the whole test program, so that a test
// can run code in the middle of a function under test.
namespace cacheshim {

// Code that runs once: instead of this thread's next linkat(2), or before its next statx(2) or utimensat(2).
extern thread_local std::function<int(const std::function<int()>& link)> on_link;
extern thread_local std::function<void()> before_statx;
extern thread_local std::function<void()> before_touch;
extern thread_local int stat_calls;  // the number of this thread's calls of fstatat(2)

}  // namespace cacheshim
