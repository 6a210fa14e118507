// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// How long the kernel may cache the daemon's answers, in seconds.
//
// The timeout if every change causes an invalidation: this daemon's own changes do, and so do those that BaseWatch
// reports. The timeout then only limits how long the kernel uses an outdated answer that it received after the
// invalidation.
inline constexpr double kLongTimeout = 60.0;
// The timeout if a change may remain undetected, because another machine makes it or the directory has no watch.
inline constexpr double kShortTimeout = 1.0;

}  // namespace cacheshim
