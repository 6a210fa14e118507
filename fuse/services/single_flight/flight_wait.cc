// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/flight_wait.h"

#include <sys/eventfd.h>

#include "store/sys/guard.h"

namespace cacheshim {

void FlightWait::begin(const std::string& path, FlightTime deadline, int wake_event) {
  request_.path = path;
  deadline_ = deadline;
  wake_event_ = wake_event;
}

void FlightWait::interrupt() {
  interrupted_ = true;
  const int event = wake_event_;
  if (event >= 0) (void)::eventfd_write(event, 1);  // fails only if the thread is already awake
}

void give(const FlightAnswers& answers) {
  for (const auto& wait : answers) {
    (void)run_guarded("a waiter's answer", [&] { wait->answer(); });
  }
}

}  // namespace cacheshim
