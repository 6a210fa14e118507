// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <unordered_map>

#include "fuse/services/single_flight/flight_types.h"

namespace cacheshim {

// Records of waits that have ended. They identify the first lookup by which the kernel continues after a wait. Not
// thread-safe: part of LeaseTable, guarded by its lock.
class PastWaits {
 public:
  // Call when the wait of this request has ended.
  void add(const LeaseRequest& request);
  // Whether the thread has waited for this name and now looks it up for the first time since. The
  // kernel tries again once after a wait, and does not accept a second ESTALE.
  bool take(const LeaseRequest& request);

 private:
  std::unordered_map<pid_t, std::string> waited_;  // the name, by thread
};

}  // namespace cacheshim
