// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/builder_exclusion.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace cacheshim {

bool BuilderExclusion::may_build_for_all(const LeaseRequest& request) const {
  return request.publishes && !users_.has(request.uid, options_.now());
}

bool BuilderExclusion::applies_to(const LeaseKey& key, const Lease& lease) const {
  if (users_.empty() || key.second != nullptr) return false;
  if (lease.is_held_by_other_daemon) return applies_elsewhere(key.first);
  return lease.builder && users_.has(lease.uid, options_.now());
}

bool BuilderExclusion::applies_elsewhere(const std::string& path) const {
  if (users_.empty()) return false;
  const auto builder = options_.leases.builder_of(path);
  return builder && users_.has(builder->uid, options_.now());
}

// If another daemon has granted the lease, it may have done so after the waits began. So charges the builder's user
// only for the time since the builder got the lease.
void BuilderExclusion::charge(const LeaseKey& key, Lease& lease) {
  if (key.second != nullptr || (lease.job == nullptr && !lease.is_held_by_other_daemon)) return;
  auto longest = FlightTime::duration::max();
  if (lease.is_held_by_other_daemon) {
    const auto builder = options_.leases.builder_of(key.first);
    if (!builder) return;
    lease.uid = builder->uid;
    longest = builder->since;
  }
  const auto now = options_.now();
  const auto waited = std::min(lease.longest_wait_of_others(now), longest);
  if (waited <= lease.charged) return;
  const auto charge = waited - std::exchange(lease.charged, waited);
  if (!users_.charge(lease.uid, charge, now)) return;
  spdlog::warn(
      "uid {}: processes of other users have waited {} s in vain for its builds, last for '{}'; for an hour, or until "
      "this user publishes, the user builds only for their own jobs",
      lease.uid, std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count(),
      key.first);
}

}  // namespace cacheshim
