// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// How long the kernel may answer for us, in seconds.
//
// Where every change is told of by a notice (this daemon's own, and those that BaseWatch sees), the
// timeout only bounds what a notice that crossed a reply on its way may leave behind.
inline constexpr double kLongTimeout = 60.0;
// Where a change may come unseen, from another machine or with nothing to watch by.
inline constexpr double kShortTimeout = 1.0;

}  // namespace cacheshim
