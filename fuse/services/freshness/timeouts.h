// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// How long the kernel may cache our answers, in seconds.
//
// If every change causes an invalidation (this daemon's own changes, and those that BaseWatch
// sees), the timeout only limits the effect of an invalidation that crossed a reply.
inline constexpr double kLongTimeout = 60.0;
// If a change may remain undetected, from another machine or without a watch.
inline constexpr double kShortTimeout = 1.0;

}  // namespace cacheshim
