// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuse/limits/user_limits.h"
#include "fuse/requests/interruptible.h"
#include "fuse/services/single_flight/flight_types.h"
#include "store/threads/event_loop.h"

namespace cacheshim {

// One waiting request. It is answered once, on any thread, with no lock held.
class FlightWait final : public Interruptible {
 public:
  // `request`: its path is ignored; begin() sets it to the path of the placeholder for which the request waits.
  FlightWait(LeaseRequest request, std::function<void()> answer)
      : answer_(std::move(answer)), request_(std::move(request)) {}

  // Thread-safe; needs no lock.
  void interrupt() override;
  void answer() const { answer_(); }

  // Only for Flights. Call with LeaseTable::mutex held. `tender` runs the task that ends waits; it must outlive the
  // request.
  void begin(const std::string& path, FlightTime now, std::chrono::milliseconds timeout,
             const EventLoop::Task& tender);
  void set_charge(Charge charge) { charge_ = std::move(charge); }
  FlightTime began() const { return began_; }
  const LeaseRequest& request() const { return request_; }
  bool is_late(FlightTime now) const { return deadline_ <= now; }
  bool is_interrupted() const { return interrupted_; }

 private:
  const std::function<void()> answer_;
  std::atomic<bool> interrupted_{false};
  std::atomic<const EventLoop::Task*> tender_{nullptr};
  LeaseRequest request_;
  FlightTime began_;
  FlightTime deadline_;
  Charge charge_;
};

// The requests to answer once the lock is released.
using FlightAnswers = std::vector<std::shared_ptr<FlightWait>>;
void send_answers(const FlightAnswers& answers);

}  // namespace cacheshim
