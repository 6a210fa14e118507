// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <unordered_map>

#include "fuse/services/single_flight/flight_types.h"

namespace cacheshim {

// Records the waits that have ended. A record identifies the lookup with which the kernel retries a call after the
// wait. Not thread-safe: part of LeaseTable, guarded by its lock.
class PastWaits {
 public:
  // Call when the wait of this request has ended.
  void add(const LeaseRequest& request);
  // Returns true if the thread has waited for this name and now looks it up for the first time since. Removes the
  // record. The kernel retries only once after ESTALE: a second ESTALE would make the call fail.
  bool take(const LeaseRequest& request);

 private:
  std::unordered_map<pid_t, std::string> waited_;  // the name, by thread
};

}  // namespace cacheshim
