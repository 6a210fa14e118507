// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/past_waits.h"

#include <cstddef>

namespace cacheshim {
namespace {

// The maximum number of records; at the maximum, add() drops all of them. Otherwise the records of threads that never
// make another lease request would accumulate.
constexpr std::size_t kMost = 4096;

}  // namespace

void PastWaits::add(const LeaseRequest& request) {
  if (waited_.size() >= kMost) waited_.clear();
  waited_[request.thread] = request.path;
}

bool PastWaits::take(const LeaseRequest& request) {
  const auto waited = waited_.find(request.thread);
  if (waited == waited_.end()) return false;
  const bool is_same = waited->second == request.path;
  waited_.erase(waited);
  return is_same;
}

}  // namespace cacheshim
