// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace cacheshim::parity {

// Returns the shortest list found for which `fails` still returns true. Leaves out shorter and shorter runs of steps,
// until no single step can be left out or `fails` has been called `most_tries` times. Keeps the order of the steps.
// Each call of `fails` must begin from the same state. Requires: `fails(steps)` is true.
template <class Step>
std::vector<Step> shrink(std::vector<Step> steps,
                         const std::function<bool(const std::vector<Step>&)>& fails,
                         unsigned most_tries) {
  std::size_t run = std::max<std::size_t>(steps.size() / 2, 1);
  for (bool left_out = true; run > 1 || left_out; run = std::max<std::size_t>(run / 2, 1)) {
    left_out = false;
    for (std::size_t from = 0; from < steps.size();) {
      if (most_tries-- == 0) return steps;
      const auto first = steps.begin() + static_cast<std::ptrdiff_t>(from);
      const auto last = first + static_cast<std::ptrdiff_t>(std::min(run, steps.size() - from));
      std::vector<Step> fewer(steps.begin(), first);
      fewer.insert(fewer.end(), last, steps.end());
      if (fails(fewer)) {
        steps = std::move(fewer);
        left_out = true;
      } else {
        from += run;
      }
    }
  }
  return steps;
}

}  // namespace cacheshim::parity
