// SPDX-License-Identifier: Apache-2.0
#pragma once

// The program's exit codes. If `run` or `lock` has run its command, the program exits with the
// command's code.
namespace cacheshim {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;         // also for an unknown configuration key or an invalid job id
inline constexpr int kExitUnavailable = 69;  // mount or store not available (EX_UNAVAILABLE)
inline constexpr int kExitTimedOut = 75;     // EX_TEMPFAIL

}  // namespace cacheshim
