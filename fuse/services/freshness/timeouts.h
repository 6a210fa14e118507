// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// How long the kernel may cache the daemon's answers, in seconds.
//
// The timeout of an answer if every change to it causes an invalidation, because either this daemon makes the change or
// BaseWatch reports it. The timeout then matters only for an outdated answer that has reached the kernel after the
// invalidation.
inline constexpr double kLongTimeout = 60.0;
// The timeout if the daemon may miss a change or learn of it late: another machine makes the change, the directory has
// no watch, or a process may still be writing to the file.
inline constexpr double kShortTimeout = 1.0;

}  // namespace cacheshim
