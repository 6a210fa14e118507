// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/lease_table.h"

#include <algorithm>

#include "fuse/jobs/job.h"

namespace cacheshim {

namespace {

// The maximum number of ended placeholders whose names the table remembers. At the maximum, it forgets all of them.
constexpr std::size_t kMostEnded = 1024;

}  // namespace

LeaseTable::Iterator LeaseTable::find(const LeaseRequest& request) {
  const auto of_all = leases.find({request.path, nullptr});
  if (of_all != leases.end() || exclusion.may_build_for_all(request)) return of_all;
  return leases.find({request.path, request.job.get()});
}

LeaseTable::Iterator LeaseTable::find_by_placeholder(NodeIndex placeholder) {
  const auto key = placeholders_.find(placeholder);
  return key != placeholders_.end() ? leases.find(key->second) : leases.end();
}

LeaseTable::Iterator LeaseTable::find_by_serial(std::uint64_t serial) {
  const auto key = serials_.find(serial);
  return key != serials_.end() ? leases.find(key->second) : leases.end();
}

bool LeaseTable::is_settling(const Lease& lease) const {
  if (lease.is_finished) return true;
  const auto jobs = options_.publishers(lease.entry);
  return std::ranges::find(jobs, lease.job) != jobs.end();
}

std::shared_ptr<Job> LeaseTable::other_publisher(const LeaseRequest& request) const {
  for (auto& job : options_.publishers(request.entry)) {
    if (job != request.job) return job;
  }
  return nullptr;
}

bool LeaseTable::make_room(const Process& builder) {
  if (leases.size() >= kMostLeases) return false;
  std::size_t held = 0;
  auto oldest = leases.end();
  for (auto at = leases.begin(); at != leases.end(); ++at) {
    const Lease& lease = at->second;
    if (lease.builder != builder) continue;
    ++held;
    const bool is_older = oldest == leases.end() || lease.serial < oldest->second.serial;
    if (lease.waits.empty() && is_older) oldest = at;
  }
  if (held < kMostLeasesOfProcess) return true;
  if (oldest == leases.end()) return false;
  erase(oldest);
  return true;
}

LeaseTable::Iterator LeaseTable::add(LeaseKey key, const LeaseRequest& request,
                                     Lease::LimitCharges charges) {
  const auto added = leases.try_emplace(std::move(key)).first;
  ++count_;
  Lease& lease = added->second;
  lease.entry = request.entry;
  lease.rule = request.rule;
  lease.is_entry = request.is_entry();
  lease.limit_charges = std::move(charges);
  return added;
}

void LeaseTable::make_builder(Iterator found, const LeaseRequest& request, UniqueFd pidfd) {
  auto& [key, lease] = *found;
  serials_.erase(lease.serial);
  const auto before = lease.job;
  lease.candidate.reset();
  lease.set_builder(request, std::move(pidfd), options_.now());
  if (lease.rule != nullptr) {
    note_building(before);
    note_building(lease.job);
  }
  lease.serial = next_serial_++;
  serials_[lease.serial] = key;
  options_.leases.note_builder(lease.file, lease.uid);
  // If this fails, the daemon does not notice when the builder exits, and the waiters wait until their timeout.
  (void)tender_.watch(lease.watched.get(), lease.serial);
  counters_.flight_leases.fetch_add(1, std::memory_order_relaxed);
  if (lease.is_entry) tender_.wake();  // to watch the builder
  for (auto wait = lease.waits.begin(); wait != lease.waits.end();) {
    const auto at = wait++;
    if (contains((*at)->request().lineage, *lease.builder)) release(lease, at, true);
  }
}

void LeaseTable::hand_over(Iterator found) {
  auto& [key, lease] = *found;
  exclusion.charge(key, lease);
  while (!lease.waits.empty()) {
    const auto first = lease.waits.begin();
    const LeaseRequest request = (*first)->request();
    const bool may_build = key.second != nullptr || exclusion.may_build_for_all(request);
    auto pidfd = may_build ? options_.watch(request.process()) : UniqueFd();
    // Released first, because the next builder may belong to the same user.
    lease.limit_charges = {};
    auto charges = pidfd ? Lease::LimitCharges::take(request.account) : Errno(ESRCH);
    release(lease, first, !charges);
    if (!charges) continue;
    lease.limit_charges = *std::move(charges);
    return make_builder(found, request, std::move(pidfd));
  }
  if (const auto candidate = std::exchange(lease.candidate, std::nullopt)) {
    auto pidfd = options_.watch(candidate->process());
    if (pidfd) return make_builder(found, *candidate, std::move(pidfd));
  }
  erase(found);
}

void LeaseTable::release(Lease& lease, Lease::Waits::iterator wait, bool as_builder) {
  const LeaseRequest& request = (*wait)->request();
  if (as_builder) lease.builders.push_back(request.process());
  past.add(request);
  answers_.push_back(*wait);
  lease.waits.erase(wait);
}

void LeaseTable::erase(Iterator found) {
  auto& [key, lease] = *found;
  while (!lease.waits.empty()) release(lease, lease.waits.begin(), false);
  serials_.erase(lease.serial);
  if (ended_.size() >= kMostEnded) ended_.clear();
  for (const auto& [job, node] : lease.placeholders) {
    placeholders_.erase(node);
    ended_[node] = key.first;
    nodes_.forget(node, 1);
  }
  options_.leases.release(key.first, std::move(lease.file));
  const auto builds_less = lease.rule != nullptr ? lease.job : nullptr;
  leases.erase(found);
  --count_;
  note_building(builds_less);
}

void LeaseTable::fail(Iterator found) {
  exclusion.charge(found->first, found->second);
  failed.add(found->first.first, options_.now() + kFailedFor);
  remembers_failures_ = true;
  counters_.flight_failures.fetch_add(1, std::memory_order_relaxed);
  erase(found);
}

void LeaseTable::forget_failures(const std::string& path) {
  failed.forget(path);
  remembers_failures_ = !failed.empty();
}

void LeaseTable::note_unwaited(NodeIndex placeholder, LeaseRequest request) {
  const auto lease = placeholders_.find(placeholder);
  const auto ended = ended_.find(placeholder);
  if (lease == placeholders_.end() && ended == ended_.end()) return;
  request.path = lease != placeholders_.end() ? lease->second.first : ended->second;
  past.add(request);
}

NodeIndex LeaseTable::placeholder_of(Iterator found, Job* job) {
  auto& [key, lease] = *found;
  const auto known = lease.placeholders.find(job);
  if (known != lease.placeholders.end()) {
    nodes_.count_lookup(known->second);
    return known->second;
  }
  // Counts two lookups: one for the daemon, which keeps the node as long as the lease exists, and one for the kernel.
  const NodeIndex node = nodes_.intern_nameless(job, {}, {});
  nodes_.count_lookup(node);
  lease.placeholders[job] = node;
  placeholders_[node] = key;
  ended_.erase(node);
  return node;
}

// Call when a process of this job has become a builder, or has ceased to be one.
void LeaseTable::note_building(const std::shared_ptr<Job>& job) const {
  if (job == nullptr) return;
  const bool builds = std::any_of(leases.begin(), leases.end(), [&](const auto& each) {
    const Lease& lease = each.second;
    return lease.job == job && lease.builder && lease.rule != nullptr;
  });
  options_.note_building(*job, builds);
}

}  // namespace cacheshim
