// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "fuse/services/single_flight/flights.h"

// Detects builds that have failed although their process continues (docs/single-flight.md).
namespace cacheshim {
namespace {

// A builder looks the name up once before it builds, and once more when it renames a file to that
// name; the kernel may send two lookups at once for one. A process that repeats the lookup more
// often is itself waiting for the name.
constexpr int kMostLooks = 8;
constexpr auto kLookPause = std::chrono::milliseconds(1);

// The interval of checks of a builder's work in /proc.
constexpr auto kBuilderTick = std::chrono::milliseconds(100);

}  // namespace

// Whether the builder's thread looks the name up again and has made nothing meanwhile: its build
// has failed.
bool Flights::returns_without_a_step(const Lease& lease, const LeaseRequest& request) const {
  // An entry that is built elsewhere does not change during the build.
  if (lease.is_entry) return false;
  return lease.leader == self(request) && lease.thread.pid == request.thread && !lease.has_begun &&
         lease.last_look && options_.now() - *lease.last_look > kApproach;
}

// The thread begins an entry of a rule with `one_by_one`: its earlier builds by the same rule have
// failed.
void Flights::fail_others_of(const LeaseRequest& request, Answers& answers) {
  if (request.rule == nullptr) return;
  for (auto it = leases_.begin(); it != leases_.end();) {
    const auto found = it++;
    const Lease& lease = found->second;
    if (lease.leader != self(request) || lease.thread.pid != request.thread) continue;
    const bool is_other = lease.rule == request.rule && lease.entry != request.entry;
    if (is_other && !lease.is_finished) fail(found, answers);
  }
}

void Flights::note_open(const LeaseRequest& request) {
  Answers answers;
  {
    const MutexLock lock(mutex_);
    fail_others_of(request, answers);
  }
  give(answers);
}

// Call when a lease has got or lost its builder, a process of this job.
void Flights::note_building(Job* job) const {
  if (job == nullptr) return;
  const bool builds = std::any_of(leases_.begin(), leases_.end(), [&](const auto& each) {
    const Lease& lease = each.second;
    return lease.job == job && lease.leader && lease.rule != nullptr;
  });
  options_.note_building(*job, builds);
}

void Flights::fail(Leases::iterator found, Answers& answers) {
  failed_.add(found->first.first, options_.now() + kFailedFor);
  remembers_failures_ = true;
  counters_.flight_failures.fetch_add(1, std::memory_order_relaxed);
  erase(found, answers);
}

void Flights::note_step(const Job& job, const std::string& entry, Step step) {
  Answers answers;
  {
    const MutexLock lock(mutex_);
    const std::string below = entry + '/';
    for (auto it = leases_.lower_bound({below, nullptr}); it != leases_.end();) {
      const auto found = it++;
      if (!found->first.first.starts_with(below)) break;
      Lease& lease = found->second;
      if (lease.job != &job || !lease.leader) continue;
      lease.has_begun = true;
      lease.has_part |= step == Step::kPart;
      if (step == Step::kCleared && !lease.has_part) fail(found, answers);
    }
  }
  give(answers);
}

// Whether the builder has looked the name up so often that it cannot be building.
bool Flights::only_looks(Lease& lease, const LeaseRequest& request) const {
  if (lease.leader != self(request) || lease.thread.pid != request.thread) return false;
  const auto now = options_.now();
  // Programs stat each file of an entry in turn, and for each of them the kernel looks the entry's
  // name up.
  const auto pause = lease.is_entry ? kApproach : kLookPause;
  if (!lease.last_look || now - *lease.last_look > pause) ++lease.looks;
  lease.last_look = now;
  return lease.looks >= kMostLooks;
}

// Whether the leader or a descendant of it waits in another flight.
bool Flights::waits_for_another(const Lease& lease) const {
  return std::any_of(leases_.begin(), leases_.end(), [&](const auto& each) {
    const Waits& waits = each.second.waits;
    return std::any_of(waits.begin(), waits.end(), [&](const auto& wait) {
      return contains(wait->request_.lineage, *lease.leader);
    });
  });
}

std::vector<Flights::Watched> Flights::take_watched() {
  std::vector<Watched> all;
  const auto now = options_.now();
  const MutexLock lock(mutex_);
  for (auto& [key, lease] : leases_) {
    if (!lease.is_entry || !lease.leader || now < lease.next_check) continue;
    lease.next_check = now + kBuilderTick;
    all.push_back({key, lease.serial, lease.leader->pid, lease.thread});
  }
  return all;
}

// Whether the builder of an entry that is built elsewhere has stopped working at it.
bool Flights::has_stopped_building(Lease& lease, const BuilderWork& work) const {
  if (work.has_ended) return true;
  if (waits_for_another(lease)) lease.activity.forget();
  const auto now = options_.now();
  return lease.activity.note(now, work) ||
         (lease.waits.empty() && now - lease.since >= options_.timeout);
}

// A lease without waiters ends without an effect: its thread may only have checked whether the
// entry exists.
void Flights::check_builders(Answers& answers) {
  std::vector<Watched> all = take_watched();
  for (Watched& watched : all) watched.work = options_.work_of(watched.builder, watched.thread);
  const MutexLock lock(mutex_);
  for (const Watched& watched : all) {
    const auto found = leases_.find(watched.key);
    if (found == leases_.end() || found->second.serial != watched.serial || !watched.work) continue;
    if (!found->second.leader || found->second.is_finished) continue;
    if (!has_stopped_building(found->second, *watched.work)) continue;
    if (found->second.waits.empty()) {
      erase(found, answers);
    } else {
      fail(found, answers);
    }
  }
}

}  // namespace cacheshim
