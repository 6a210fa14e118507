// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/flight_wait.h"

#include "store/threads/guard.h"

namespace cacheshim {

void FlightWait::begin(const std::string& path, FlightTime now, std::chrono::milliseconds timeout,
                       const EventLoop::Task& tender) {
  request_.path = path;
  began_ = now;
  deadline_ = now + timeout;
  tender_ = &tender;
}

void FlightWait::interrupt() {
  interrupted_ = true;
  if (const EventLoop::Task* const tender = tender_) tender->wake();
}

void send_answers(const FlightAnswers& answers) {
  for (const auto& wait : answers) {
    (void)run_guarded("a waiter's answer", [&] { wait->answer(); });
  }
}

}  // namespace cacheshim
