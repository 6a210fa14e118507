// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace cacheshim {

// Long work is done in slices. Before each slice it asks whether its result is still wanted; if not,
// it stops and fails with ECANCELED. An empty function means that the result is always wanted. The
// work calls the function on its own thread, with no lock held that the function may take.
using IsWanted = std::function<bool()>;

inline bool is_still_wanted(const IsWanted& is_wanted) { return !is_wanted || is_wanted(); }

}  // namespace cacheshim
