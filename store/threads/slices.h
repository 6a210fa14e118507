// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace cacheshim {

// Tells a long task whether its result is still wanted. The task works in slices and calls the function before each
// slice. If the function returns false, the task stops and fails with ECANCELED. An empty function means that the
// result is always wanted. The task calls the function on its own thread, with no lock held that the function may take.
using IsWanted = std::function<bool()>;

inline bool is_still_wanted(const IsWanted& is_wanted) { return !is_wanted || is_wanted(); }

}  // namespace cacheshim
