// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/lease.h"

#include <algorithm>

namespace cacheshim {
namespace {

// A builder looks up the name once before it builds, and once more when it renames a file to that name. For each of
// these lookups, the kernel may send two LOOKUP requests; those within kLookupPause count as one. A process that has
// looked up the name kMostLookups times is not building it but waiting for it.
constexpr int kMostLookups = 8;
constexpr auto kLookupPause = std::chrono::milliseconds(1);

// After a wait, the kernel continues the same call with up to two lookups: the first checks the placeholder, which the
// kernel then drops, and the second finds the name. On a busy machine, any amount of time can pass between them.
constexpr int kLookupsAfterWait = 2;

}  // namespace

Result<Lease::LimitCharges> Lease::LimitCharges::take(UserAccount* account) {
  constexpr std::uint64_t kDescriptors = 2;  // `watched` and `file`
  CACHESHIM_TRY(one, Charge::take(account, Limit::kLeases));
  CACHESHIM_TRY(open, Charge::take(account, Limit::kHandles, kDescriptors));
  return LimitCharges{std::move(one), std::move(open)};
}

void Lease::set_builder(const LeaseRequest& request, UniqueFd pidfd, FlightTime now) {
  job = request.job;
  builder = request.process();
  const auto stat = stat_of(request.thread);
  thread = {request.thread, stat ? stat->start_time : 0};
  since = now;
  uid = request.uid;
  charged = {};
  next_check = now;
  activity.forget();
  is_finished = false;
  has_exited = false;
  has_begun = false;
  has_part = false;
  lookups = 0;
  last_lookup = now;
  lookups_of_wait = kLookupsAfterWait;
  watched = std::move(pidfd);
}

bool Lease::is_built_by(const Lineage& lineage) const {
  if (builder && contains(lineage, *builder)) return true;
  return std::any_of(builders.begin(), builders.end(),
                     [&](const Process& process) { return contains(lineage, process); });
}

bool Lease::is_awaited_by(const Process& process) const {
  return std::any_of(waits.begin(), waits.end(),
                     [&](const auto& wait) { return contains(wait->request().lineage, process); });
}

FlightTime::duration Lease::longest_wait_of_others(FlightTime now) const {
  FlightTime::duration longest{0};
  for (const auto& wait : waits) {
    if (wait->request().uid == uid) continue;
    longest = std::max(longest, now - std::max(since, wait->began()));
  }
  return longest;
}

bool Lease::is_returned_to(const LeaseRequest& request, FlightTime now) const {
  // An entry that is built elsewhere does not change during the build, so has_begun stays false.
  if (is_entry) return false;
  return is_built_by_thread_of(request) && !has_begun && lookups_of_wait == 0 &&
         now - last_lookup > kFlightApproach;
}

bool Lease::count_lookup(const LeaseRequest& request, FlightTime now) {
  if (!is_built_by_thread_of(request)) return false;
  // Programs stat the files of an entry one after the other, and for each file the kernel looks up the entry's name
  // again.
  const auto pause = is_entry ? kFlightApproach : kLookupPause;
  if (now - last_lookup > pause) ++lookups;
  last_lookup = now;
  if (lookups_of_wait > 0) --lookups_of_wait;
  return lookups >= kMostLookups;
}

bool closes_cycle(const Leases& leases, const Lineage& caller, const Lease& lease) {
  std::set<const Lease*> seen{&lease};
  std::vector<const Lease*> open{&lease};
  while (!open.empty()) {
    const Lease* const at = open.back();
    open.pop_back();
    if (!at->builder) continue;
    if (at != &lease && contains(caller, *at->builder)) return true;
    for (const auto& [key, other] : leases) {
      if (other.is_awaited_by(*at->builder) && seen.insert(&other).second) open.push_back(&other);
    }
  }
  return false;
}

bool waits_for_any(const Leases& leases, const Process& process) {
  return std::any_of(leases.begin(), leases.end(),
                     [&](const auto& each) { return each.second.is_awaited_by(process); });
}

bool LeaseFinding::covers_waits_of(const Lease& lease) const {
  return std::ranges::all_of(lease.waits, [&](const auto& wait) { return states.contains(wait->request().job); });
}

// If the entry is complete but lacks the name, that is also a final answer, unless a process may still add the name.
bool LeaseFinding::releases(const Lease& lease, const std::shared_ptr<Job>& job) const {
  const auto found = states.find(job);
  if (found == states.end()) return false;  // the job began to wait later: the next check handles it
  const EntryState& state = found->second;
  const bool has_answer = state.has_name || !state.completes;
  if (finished.contains(job)) return has_answer;
  if (!state.is_complete) return false;
  return state.has_name || (has_answer && (!finished.empty() || !lease.builder));
}

// A builder has finished only once its job has reported that: before then, the job may be about to publish the entry. A
// builder has given up if the entry's directory no longer exists.
bool LeaseFinding::is_builder_done(const Lease& lease) const {
  const auto found = states.find(lease.job);
  if (found == states.end()) return false;
  const EntryState& state = found->second;
  if (finished.contains(lease.job)) return state.has_name || !state.completes;
  return lease.builder && !state.is_begun && !state.is_complete;
}

}  // namespace cacheshim
