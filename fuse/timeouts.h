// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// How long the kernel may answer for us, in seconds. What this daemon changes it tells the kernel of
// (Notifier); the timeouts bound how long a change by others, a raw process in the base or another
// node, stays unseen. Views with several uids see each other's changes without notices: no caching.
inline constexpr double kEntryTimeout = 1.0;
inline constexpr double kNegativeTimeout = 1.0;

}  // namespace cacheshim
