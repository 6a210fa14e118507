// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/flight_tender.h"

#include <algorithm>
#include <utility>

namespace cacheshim {
namespace {

using std::chrono::milliseconds;

// The poll interval for changes that the daemon is not notified of: a builder has been stopped; another daemon or a
// process outside the mount has created a name; another daemon has released a lease; a builder has removed its entry.
constexpr milliseconds kFlightTick(50);

// The interval at which the daemon reads a builder's work from /proc.
constexpr milliseconds kBuilderTick(100);

}  // namespace

milliseconds FlightTender::time_to_next_check() const {
  const MutexLock lock(table_.mutex);
  for (const auto& [key, lease] : table_.leases) {
    if (lease.waits.empty() && !(lease.is_entry && lease.builder)) continue;
    return kFlightTick;
  }
  return milliseconds(-1);
}

void FlightTender::tend(const std::vector<std::uint64_t>& ended) {
  FlightAnswers answers;
  {
    const MutexLock lock(table_.mutex);
    for (const std::uint64_t serial : ended) {
      const auto found = table_.find_by_serial(serial);
      if (found == table_.leases.end()) continue;
      found->second.has_exited = true;
      if (!table_.is_settling(found->second)) table_.hand_over(found);
    }
    end_late_waits();
    replace_excluded_builders();
    try_leases_held_elsewhere();
    answers = table_.take_answers();
  }
  send_answers(answers);
  check_names();
  check_builders();
}

// Ends the waits that have timed out or been interrupted. Hands the lease of a stopped builder to
// the process that has waited longest.
void FlightTender::end_late_waits() {
  const auto now = options_.now();
  for (auto it = table_.leases.begin(); it != table_.leases.end();) {
    const auto found = it++;
    Lease& lease = found->second;
    for (auto wait = lease.waits.begin(); wait != lease.waits.end();) {
      const auto at = wait++;
      const bool is_late = (*at)->is_late(now);
      if (is_late) {
        counters_.flight_timeouts.fetch_add(1, std::memory_order_relaxed);
        table_.exclusion.charge(found->first, lease);
      }
      if (is_late || (*at)->is_interrupted()) table_.release(lease, at, true);
    }
    const bool has_builder = !lease.waits.empty() && lease.builder;
    if (has_builder && options_.is_stopped(*lease.builder) && !table_.is_settling(lease)) {
      lease.builders.push_back(*lease.builder);
      table_.hand_over(found);
    }
  }
}

// Hands over the leases that excluded users hold for all jobs. The excluded user's process continues to build without
// the lease. If another daemon has granted the lease to an excluded user, the waiters stop waiting for that daemon.
void FlightTender::replace_excluded_builders() {
  for (auto it = table_.leases.begin(); it != table_.leases.end();) {
    const auto found = it++;
    Lease& lease = found->second;
    if (!table_.exclusion.applies_to(found->first, lease)) continue;
    if (lease.builder) lease.builders.push_back(*lease.builder);
    lease.is_held_by_other_daemon = false;
    table_.hand_over(found);
  }
}

// Tries to take the leases that other daemons hold, and notes which searches on other machines have ended. In both
// cases, the name may exist now, so check_names() checks for it before another process becomes the builder.
void FlightTender::try_leases_held_elsewhere() {
  for (auto& [key, lease] : table_.leases) {
    if (!lease.is_held_elsewhere()) continue;
    if (lease.is_held_by_other_daemon) {
      auto file = options_.leases.try_take(key.first);
      if (!file) continue;
      lease.file = *std::move(file);
      lease.is_held_by_other_daemon = false;
    }
    if (lease.is_sought && !lease.remote->is_settled()) continue;
    lease.is_sought = false;
    lease.is_to_be_checked = true;
  }
}

std::vector<LeaseFinding> FlightTender::take_findings() {
  std::vector<LeaseFinding> findings;
  const MutexLock lock(table_.mutex);
  for (auto& [key, lease] : table_.leases) {
    if (lease.waits.empty() && !lease.is_to_be_checked) continue;
    LeaseFinding finding{key, std::exchange(lease.finished, {}), {}};
    for (const auto& wait : lease.waits) finding.states[wait->request().job] = {};
    if (lease.job != nullptr) finding.states[lease.job] = {};
    if (lease.candidate) finding.states[lease.candidate->job] = {};
    findings.push_back(std::move(finding));
    lease.is_to_be_checked = false;
  }
  return findings;
}

// Inspects each name that has waiters, in the views of the builder's job and of the waiters' jobs.
void FlightTender::check_names() {
  FlightAnswers answers;
  for (LeaseFinding& finding : take_findings()) {
    for (auto& [job, state] : finding.states) state = options_.inspect(*job, finding.key.first);
    const MutexLock lock(table_.mutex);
    settle(finding);
    std::ranges::move(table_.take_answers(), std::back_inserter(answers));
  }
  send_answers(answers);
}

// Ends the waits whose result is known. If the builder has finished or given up, or if no process holds the lease,
// hands the lease to the waiter that has waited longest; if no waiter is left, the lease ends. If processes of another
// job have begun to wait during the inspection, leaves the lease to the next check, because that job may already have
// the name.
void FlightTender::settle(const LeaseFinding& finding) {
  const auto found = table_.leases.find(finding.key);
  if (found == table_.leases.end()) return;
  Lease& lease = found->second;
  for (auto wait = lease.waits.begin(); wait != lease.waits.end();) {
    const auto at = wait++;
    const LeaseRequest& request = (*at)->request();
    if (!finding.releases(lease, request.job)) continue;
    if (finding.states.at(request.job).has_name) {
      counters_.flight_hits.fetch_add(1, std::memory_order_relaxed);
    }
    table_.release(lease, at, false);
  }
  if (lease.candidate && finding.releases(lease, lease.candidate->job)) lease.candidate.reset();
  if (!finding.covers_waits_of(lease)) {
    lease.finished.insert(finding.finished.begin(), finding.finished.end());
    return;
  }
  if (finding.finished.contains(lease.job)) lease.is_finished = false;
  const bool has_no_builder = lease.builder ? lease.has_exited : !lease.is_held_elsewhere();
  const bool is_free = has_no_builder && !table_.is_settling(lease);
  if (is_free || finding.is_builder_done(lease)) table_.hand_over(found);
}

std::vector<FlightTender::Watched> FlightTender::take_watched() {
  std::vector<Watched> all;
  const auto now = options_.now();
  const MutexLock lock(table_.mutex);
  for (auto& [key, lease] : table_.leases) {
    if (!lease.is_entry || !lease.builder || now < lease.next_check) continue;
    lease.next_check = now + kBuilderTick;
    all.push_back({key, lease.serial, lease.builder->pid, lease.thread});
  }
  return all;
}

// Whether the builder of an entry that is built elsewhere has stopped working on it. Also returns true if the builder
// has had the lease for `timeout` and no process waits for the entry.
bool FlightTender::has_stopped_building(Lease& lease, const BuilderWork& work) const {
  if (work.has_ended) return true;
  if (waits_for_any(table_.leases, *lease.builder)) lease.activity.forget();
  const auto now = options_.now();
  return lease.activity.note(now, work) ||
         (lease.waits.empty() && now - lease.since >= options_.timeout);
}

// Ends the leases for which has_stopped_building() returns true. If the lease has waiters, the build counts as failed.
// Otherwise the build does not count as failed, because the thread may only have checked whether the entry exists.
void FlightTender::check_builders() {
  std::vector<Watched> all = take_watched();
  for (Watched& watched : all) watched.work = options_.work_of(watched.builder, watched.thread);
  FlightAnswers answers;
  {
    const MutexLock lock(table_.mutex);
    for (const Watched& watched : all) {
      const auto found = table_.leases.find(watched.key);
      if (found == table_.leases.end() || !watched.work) continue;
      Lease& lease = found->second;
      if (lease.serial != watched.serial || !lease.builder || table_.is_settling(lease)) continue;
      if (!has_stopped_building(lease, *watched.work)) continue;
      lease.waits.empty() ? table_.erase(found) : table_.fail(found);
    }
    answers = table_.take_answers();
  }
  send_answers(answers);
}

}  // namespace cacheshim
