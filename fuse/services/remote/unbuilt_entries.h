// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "remote/key_filter.h"

namespace cacheshim {

// Decides whether processes may wait for an entry that another machine builds. A process on that machine may hold a
// lease without building, and a broken engine could report leases of machines that do not exist. So after processes
// have waited in vain, no process waits for this entry again, and after kMost such entries, no process waits for any
// entry for kDistrust. Not thread-safe.
class UnbuiltEntries {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMost = 4;
  static constexpr std::chrono::hours kDistrust{1};

  bool may_wait_for(const std::string& unit, Clock::time_point now) const {
    return now >= distrust_until_ && !units_.has(unit);
  }
  // Call after processes have waited for this unit in vain. Returns true if from now on no process may wait for any
  // entry.
  bool add(const std::string& unit, Clock::time_point now) {
    units_.add(unit);
    if (units_.size() < kMost) return false;
    units_ = {};
    distrust_until_ = now + kDistrust;
    return true;
  }

 private:
  remote::KeyFilter units_;
  Clock::time_point distrust_until_;
};

}  // namespace cacheshim
