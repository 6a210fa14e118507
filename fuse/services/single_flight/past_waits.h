// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <unordered_map>

#include "fuse/services/single_flight/flight_types.h"

namespace cacheshim {

// Records of waits that have ended. They identify the lookup that the kernel repeats after a wait,
// and the builder of one name, which is expected to build its waiters' next names too. Not
// thread-safe: part of LeaseTable and under its lock.
class PastWaits {
 public:
  // Call when the wait of this request has ended.
  void add(const LeaseRequest& request);
  // Whether the thread has waited for this name and now looks it up for the first time since. The
  // kernel repeats the lookup once after a wait, and does not accept a second ESTALE.
  bool take(const LeaseRequest& request);

  // Call when the wait has ended because `builder` has built the name.
  void note_builder(const LeaseRequest& request, const Process& builder, FlightTime now);
  struct Expected {
    Process builder;
    FlightTime until;
  };
  // Returns the builder of the last name that the process has waited for, which is expected to
  // build this one too. Returns nothing if that wait was long ago, or if the process has ever
  // waited for an expected builder that did not build.
  std::optional<Expected> expected_builder(const LeaseRequest& request, FlightTime now) const;
  void note_expected_in_vain(pid_t process) { followers_[process].expects = false; }

 private:
  // A waiter's record of the process that built the entry it waited for.
  struct Follower {
    Process builder;
    FlightTime since;  // the time at which the waiter continued
    bool expects = true;
  };

  std::unordered_map<pid_t, std::string> waited_;  // the name, by thread
  std::unordered_map<pid_t, Follower> followers_;  // by process
};

}  // namespace cacheshim
