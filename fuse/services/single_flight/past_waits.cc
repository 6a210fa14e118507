// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/past_waits.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace cacheshim {
namespace {

using std::chrono::milliseconds;

// The maximum number of records. Without it, records of threads that never look the name up again
// would stay.
constexpr std::size_t kMost = 4096;

// A builder is expected for twice as long as its follower took to request the next name, because
// both share the processors with all other followers.
constexpr milliseconds kShortestExpected(25);
constexpr milliseconds kLongestExpected(60);
constexpr milliseconds kLongestStep(250);  // no builder is expected after a longer one

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

void PastWaits::note_builder(const LeaseRequest& request, const Process& builder, FlightTime now) {
  if (followers_.size() >= kMost) followers_.clear();
  Follower& follower = followers_[request.process().pid];
  follower.builder = builder;
  follower.since = now;
}

std::optional<PastWaits::Expected> PastWaits::expected_builder(const LeaseRequest& request,
                                                               FlightTime now) const {
  const auto known = followers_.find(request.process().pid);
  if (known == followers_.end() || !known->second.expects) return std::nullopt;
  const Follower& follower = known->second;
  const auto step = std::chrono::duration_cast<milliseconds>(now - follower.since);
  if (step > kLongestStep || contains(request.lineage, follower.builder)) return std::nullopt;
  return Expected{follower.builder,
                  now + std::clamp(2 * step, kShortestExpected, kLongestExpected)};
}

}  // namespace cacheshim
