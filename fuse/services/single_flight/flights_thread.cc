// SPDX-License-Identifier: Apache-2.0
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "fuse/services/single_flight/flights.h"
#include "store/sys/guard.h"

// The thread that ends waits. It learns of builders that exit, and polls for changes without a
// notification.
namespace cacheshim {
namespace {

// The poll interval for changes without a notification: a builder that was stopped, a name that a
// raw process or another daemon has made, a lease that another daemon has released, an entry that
// its builder has removed.
constexpr auto kTick = std::chrono::milliseconds(50);

}  // namespace

// -1: no timeout.
std::chrono::milliseconds Flights::time_to_next_look() const {
  std::chrono::milliseconds time(-1);
  const auto now = options_.now();
  for (const auto& [key, lease] : leases_) {
    if (lease.waits.empty() && !lease.expected && !(lease.is_entry && lease.leader)) continue;
    auto until = kTick;
    if (lease.expected) {
      until = std::clamp(std::chrono::ceil<std::chrono::milliseconds>(lease.expected_until - now),
                         std::chrono::milliseconds(0), kTick);
    }
    time = time.count() < 0 ? until : std::min(time, until);
  }
  return time;
}

void Flights::run() {
  for (;;) {
    std::chrono::milliseconds timeout;
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      timeout = time_to_next_look();
    }
    tend_once(timeout);
  }
}

void Flights::tend_once(std::chrono::milliseconds timeout) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(events_.get(), events.data(), events.size(),
                                 static_cast<int>(timeout.count()));
  const std::span happened(events.data(), static_cast<std::size_t>(std::max(count, 0)));
  (void)run_guarded("tending flights", [&] { tend(happened); });
}

void Flights::tend(std::span<const epoll_event> events) {
  Answers answers;
  {
    const MutexLock lock(mutex_);
    for (const epoll_event& event : events) {
      if (event.data.u64 == kWakeUpSerial) {
        eventfd_t value = 0;
        (void)::eventfd_read(wake_event_.get(), &value);
      } else {
        leader_ended(event.data.u64, answers);
      }
    }
    look_after(answers);
    try_others_leases();
  }
  give(answers);
  answers.clear();
  check(answers);
  give(answers);
  answers.clear();
  check_builders(answers);
  give(answers);
}

void Flights::leader_ended(std::uint64_t serial, Answers& answers) {
  const auto key = serials_.find(serial);
  const auto found = key != serials_.end() ? leases_.find(key->second) : leases_.end();
  if (found != leases_.end()) hand_over(found, answers);
}

// Ends the waits of processes that need not, or must not, wait any longer, and the leases of
// builders that do not run.
void Flights::look_after(Answers& answers) {
  const auto now = options_.now();
  for (auto it = leases_.begin(); it != leases_.end();) {
    const auto found = it++;
    Lease& lease = found->second;
    for (auto wait = lease.waits.begin(); wait != lease.waits.end();) {
      const auto at = wait++;
      const bool is_late = (*at)->deadline_ <= now;
      if (is_late) counters_.flight_timeouts.fetch_add(1, std::memory_order_relaxed);
      if (is_late || (*at)->interrupted_) release(lease, at, true, answers);
    }
    if (lease.expected && lease.expected_until <= now) {
      lease.expected.reset();
      followers_[lease.expecting].expects = false;
      hand_over(found, answers);
    } else if (!lease.waits.empty() && lease.leader && options_.is_stopped(*lease.leader)) {
      lease.builders.push_back(*lease.leader);
      hand_over(found, answers);
    }
  }
}

// Another daemon has released the lease, so the name may exist: check() tests this before a process
// becomes the builder.
void Flights::try_others_leases() {
  for (auto& [key, lease] : leases_) {
    if (!lease.is_others) continue;
    auto file = options_.leases.try_take(key.first);
    if (!file) continue;
    lease.file = *std::move(file);
    lease.is_others = false;
    lease.is_to_be_checked = true;
  }
}

std::vector<Flights::Finding> Flights::take_findings() {
  std::vector<Finding> findings;
  const MutexLock lock(mutex_);
  for (auto& [key, lease] : leases_) {
    if (lease.waits.empty() && !lease.is_to_be_checked) continue;
    Finding finding{key, std::exchange(lease.finished, {}), {}};
    for (const auto& wait : lease.waits) finding.states[wait->request_.job] = {};
    if (lease.job != nullptr) finding.states[lease.job] = {};
    findings.push_back(std::move(finding));
    lease.is_to_be_checked = false;
  }
  return findings;
}

// Inspects, for each name with waiters, the views of all jobs that take part.
void Flights::check(Answers& answers) {
  std::vector<Finding> findings = take_findings();
  for (Finding& finding : findings) {
    for (auto& [job, state] : finding.states) state = options_.inspect(*job, finding.key.first);
    settle(finding, answers);
  }
}

// Whether a wait of this job is over. A complete entry without the name is the final answer too, unless the
// name may still be added.
bool Flights::releases(const Lease& lease, const Finding& finding, const Job* job) {
  const auto found = finding.states.find(job);
  if (found == finding.states.end()) return false;  // it joined later: the next check handles it
  const EntryState& state = found->second;
  const bool has_answer = state.has_name || !state.completes;
  if (finding.finished.contains(job)) return has_answer;
  if (!state.is_complete) return false;
  return state.has_name || (has_answer && (!finding.finished.empty() || !lease.leader));
}

// If the builder is done and the entry is not complete in a waiter's view, another process must
// build it.
void Flights::settle(const Finding& finding, Answers& answers) {
  const MutexLock lock(mutex_);
  const auto found = leases_.find(finding.key);
  if (found == leases_.end()) return;
  Lease& lease = found->second;
  if (finding.finished.contains(lease.job)) lease.is_finished = false;
  for (auto wait = lease.waits.begin(); wait != lease.waits.end();) {
    const auto at = wait++;
    const Job* const job = (*at)->request_.job;
    if (!releases(lease, finding, job)) continue;
    if (finding.states.at(job).has_name) {
      counters_.flight_hits.fetch_add(1, std::memory_order_relaxed);
      if (lease.leader) note_builder((*at)->request_, *lease.leader);
    }
    release(lease, at, false, answers);
  }
  const bool has_no_leader = !lease.leader && !lease.is_others && !lease.expected;
  if (has_no_leader || is_leader_done(lease, finding)) hand_over(found, answers);
}

// A builder is done once its job has finished: before that, the entry may be about to be published.
// It has given up if the entry's directory is gone.
bool Flights::is_leader_done(const Lease& lease, const Finding& finding) {
  const auto found = finding.states.find(lease.job);
  if (found == finding.states.end()) return false;
  const EntryState& state = found->second;
  if (finding.finished.contains(lease.job)) return state.has_name || !state.completes;
  return lease.leader && !state.is_begun && !state.is_complete;
}

}  // namespace cacheshim
