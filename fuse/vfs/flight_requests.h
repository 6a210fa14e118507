// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fuse/vfs/answers.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// Requests that take part in single flight (services/single_flight/flights.h). Thread-safe; call with no lock held.
class FlightRequests {
 public:
  FlightRequests(Mount& mount, Objects& objects, Answers& answers)
      : mount_(mount), objects_(objects), answers_(answers) {}

  // As SingleFlight::note_step().
  void note_step(NodeRef parent, const std::string& name);
  // Returns the reply to a lookup that found nothing:
  // - a placeholder, if another process is building the entry;
  // - the entry, if it has just appeared;
  // - `missed`, if the name does not take part in single flight, or if /proc does not show the caller;
  // - in all other cases, an absence that the kernel must not cache.
  Result<Entry> join_flight(const Request& request, NodeRef parent, const NodeInfo& info,
                            const std::string& name, const Entry& missed);
  // Whether the node may be a placeholder, so that requests for it must wait.
  bool may_be_placeholder(NodeIndex node, const NodeInfo& info) const;
  // Completes the request with ESTALE once the wait ends, for whatever reason (Flights). The kernel then looks the name
  // up again.
  template <class R>
  void wait_for_flight(const Request& request, NodeRef ref, const NodeInfo& info,
                       Completion<R> completion);

 private:
  LeaseRequest lease_request_of(const Request& request, Job& job, std::string path);
  Result<Entry> placeholder_entry(NodeRef ref, mode_t mode) const;

  Mount& mount_;
  Objects& objects_;
  Answers& answers_;
};

template <class R>
void FlightRequests::wait_for_flight(const Request& request, NodeRef ref, const NodeInfo& info,
                                     Completion<R> completion) {
  const auto pending = share(std::move(completion));
  const auto wait = std::make_shared<FlightWait>(
      lease_request_of(request, *info.job, ""), [pending] {
        pending->watch(nullptr);
        pending->complete(Errno(ESTALE));
      });
  pending->watch(wait.get());  // before another thread can complete it
  mount_.single_flight.flights()->wait(ref.node, wait);
}

}  // namespace cacheshim
