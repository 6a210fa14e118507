// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <unordered_map>

#include "fuse/services/single_flight/flight_types.h"

namespace cacheshim {

// What is remembered of waits that have ended: the kernel repeats the lookup of such a thread, and
// the builder of one name is expected to build its waiters' next names too. Not thread-safe: part
// of LeaseTable and under its lock.
class PastWaits {
 public:
  // The wait of this request has ended.
  void add(const LeaseRequest& request);
  // Whether the thread has waited for this name and looks it up for the first time since. The
  // kernel does so once after a wait, and does not accept a second ESTALE.
  bool take(const LeaseRequest& request);

  // The wait has brought the name, which `builder` has built.
  void note_builder(const LeaseRequest& request, const Process& builder, FlightTime now);
  struct Expected {
    Process builder;
    FlightTime until;
  };
  // Returns the builder of the name that the process has found last, if it may build this one too:
  // unless the process has taken long since, or has once waited for it in vain.
  std::optional<Expected> expected_builder(const LeaseRequest& request, FlightTime now) const;
  void note_expected_in_vain(pid_t process) { followers_[process].expects = false; }

 private:
  // A waiter's record of the process that built the entry it waited for.
  struct Follower {
    Process builder;
    FlightTime since;  // the time at which it continued
    bool expects = true;
  };

  std::unordered_map<pid_t, std::string> waited_;  // by thread: the name
  std::unordered_map<pid_t, Follower> followers_;  // by process
};

}  // namespace cacheshim
