// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "fuse/services/single_flight/flights.h"

// The signs by which a build counts as failed, though its process goes on (docs/single-flight.md).
namespace cacheshim {
namespace {

// A leader looks for the name once before it builds, and once more when it gives it its name; the kernel
// may make two of one, at once. One that goes on looking waits for the name itself.
constexpr int kMostLooks = 8;
constexpr auto kLookPause = std::chrono::milliseconds(1);

// How often /proc is asked for the work of a builder.
constexpr auto kBuilderTick = std::chrono::milliseconds(100);

}  // namespace

// Whether the leader's thread comes for the name again and has made nothing meanwhile: its build has failed.
bool Flights::returns_without_a_step(const Lease& lease, const Seeker& seeker) const {
  // What is made of an entry that is built elsewhere is seen nowhere in it.
  if (lease.is_entry) return false;
  return lease.leader == self(seeker) && lease.thread.pid == seeker.thread && !lease.has_begun &&
         lease.last_look && options_.now() - *lease.last_look > kApproach;
}

// The thread begins an entry of a rule with `one_by_one`: its earlier builds by the same rule have failed.
void Flights::fail_others_of(const Seeker& seeker, Answers& answers) {
  if (seeker.rule == nullptr) return;
  for (auto it = leases_.begin(); it != leases_.end();) {
    const auto found = it++;
    const Lease& lease = found->second;
    if (lease.leader != self(seeker) || lease.thread.pid != seeker.thread) continue;
    const bool is_other = lease.rule == seeker.rule && lease.entry != seeker.entry;
    if (is_other && !lease.is_finished) fail(found, answers);
  }
}

void Flights::note_open(const Seeker& seeker) {
  Answers answers;
  {
    const MutexLock lock(mutex_);
    fail_others_of(seeker, answers);
  }
  give(answers);
}

// To be called when a lease has got or lost its leader, who is of this job.
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

// Whether the leader has asked so often that it cannot be building.
bool Flights::only_looks(Lease& lease, const Seeker& seeker) const {
  if (lease.leader != self(seeker) || lease.thread.pid != seeker.thread) return false;
  const auto now = options_.now();
  // Programs ask for each file of an entry in turn, which the kernel makes lookups of the entry's name.
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
      return contains(wait->seeker_.lineage, *lease.leader);
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

// Whether the builder of an entry that is built elsewhere does not work at it any more.
bool Flights::has_stopped_building(Lease& lease, const BuilderWork& work) const {
  if (work.has_ended) return true;
  if (waits_for_another(lease)) lease.activity.forget();
  const auto now = options_.now();
  return lease.activity.note(now, work) ||
         (lease.waits.empty() && now - lease.since >= options_.timeout);
}

// A lease that nobody waits for ends without a trace: its thread may only have asked whether the entry exists.
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
