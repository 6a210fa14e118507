// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/flights.h"

#include <set>
#include <utility>

#include "fuse/jobs/job.h"

namespace cacheshim {

Flights::Flights(EventLoop& loop, FlightOptions options, NodeTable& nodes, Counters& counters)
    : options_(std::move(options)),
      table_(options_, nodes, counters, task_),
      tender_(options_, table_, counters),
      counters_(counters),
      task_(loop, "tending flights", [this](const auto& ended) { return tend(ended); }) {}

Flights::~Flights() { close().give(); }

PendingReplies Flights::close() {
  FlightAnswers answers;
  {
    const MutexLock lock(table_.mutex);
    closed_ = true;
    while (!table_.leases.empty()) table_.erase(table_.leases.begin());
    answers = table_.take_answers();
  }
  PendingReplies replies;
  replies.add([answers = std::move(answers)] { send_answers(answers); });
  return replies;
}

void Flights::reopen() {
  const MutexLock lock(table_.mutex);
  closed_ = false;
}

// Ends the waits that are due to end. `ended`: the serials of the leases whose builders have exited. Returns the time
// of the next call.
EventLoop::Clock::time_point Flights::tend(const std::vector<std::uint64_t>& ended) {
  tender_.tend(ended);
  const auto wait = tender_.time_to_next_check();
  return wait.count() < 0 ? EventLoop::kNever : EventLoop::Clock::now() + wait;
}

Flights::Answer Flights::request_lease(const LeaseRequest& request) {
  FlightAnswers answers;
  const Answer answer = [&] {
    const MutexLock lock(table_.mutex);
    const Answer advice = decide(request);
    answers = table_.take_answers();
    return advice;
  }();
  send_answers(answers);
  return answer;
}

Flights::Answer Flights::decide(const LeaseRequest& request) {
  const Answer builds{Advice::kBuild, 0};
  const auto now = options_.now();
  const bool has_waited = table_.past.take(request);
  fail_others_of(request);
  auto publisher = table_.other_publisher(request);
  if (publisher == nullptr && table_.failed.has(request.path, now)) return builds;
  const auto found = table_.find(request);
  if (found == table_.leases.end())
    return publisher != nullptr && !has_waited ? wait_for_publisher(std::move(publisher), request)
                                               : open_lease(request, has_waited);
  Lease& lease = found->second;
  if (lease.is_returned_to(request, now) && !table_.is_settling(lease)) {
    table_.fail(found);
    return builds;
  }
  if (lease.count_lookup(request, now) && !lease.waits.empty()) {
    lease.builders.push_back(request.process());
    table_.hand_over(found);
    return builds;
  }
  if (lease.is_built_by(request.lineage)) return builds;
  if (has_waited || closes_cycle(table_.leases, request.lineage, lease)) {
    lease.builders.push_back(request.process());
    return builds;
  }
  return wait_for(found, request);
}

Flights::Answer Flights::wait_for(LeaseTable::Iterator lease, const LeaseRequest& request) {
  return {Advice::kWait, table_.placeholder_of(lease, request.job.get())};
}

// Makes the request wait until `publisher` has published the entry. Requires: `publisher` has completed the entry, and
// holds no lease on this name.
Flights::Answer Flights::wait_for_publisher(std::shared_ptr<Job> publisher,
                                            const LeaseRequest& request) {
  auto charges = Lease::LimitCharges::take(request.account);
  if (closed_ || !charges) return {Advice::kBuild, 0};
  const auto added = table_.add({request.path, nullptr}, request, *std::move(charges));
  Lease& lease = added->second;
  lease.uid = publisher->views.owner().value_or(0);
  lease.job = std::move(publisher);
  lease.since = options_.now();
  return wait_for(added, request);
}

// Tries to make the request's process the builder. If another daemon holds the lease, or the entry may come from
// another machine, the process waits. `has_waited`: whether the process has just waited for the name; if another daemon
// holds the lease, the process then builds without a lease.
Flights::Answer Flights::open_lease(const LeaseRequest& request, bool has_waited) {
  if (closed_) return {Advice::kBuild, 0};
  auto pidfd = options_.watch(request.process());
  if (!pidfd || !table_.make_room(request.process())) return {Advice::kBuild, 0};
  auto charges = Lease::LimitCharges::take(request.account);
  if (!charges) return {Advice::kBuild, 0};
  const bool is_for_all = table_.exclusion.may_build_for_all(request);
  auto file = is_for_all ? options_.leases.try_take(request.path) : UniqueFd();
  if (!file && table_.exclusion.applies_elsewhere(request.path)) file = UniqueFd();
  if (!file && has_waited) {
    table_.past.add(request);  // the call may look up the name once more
    return {Advice::kBuild, 0};
  }
  const auto added = table_.add({request.path, is_for_all ? nullptr : request.job.get()}, request,
                                *std::move(charges));
  Lease& lease = added->second;
  lease.is_held_by_other_daemon = !file;
  if (file) {
    lease.file = *std::move(file);
    if (!has_waited)
      lease.remote = options_.seek(request.path, is_for_all, [this] { task_.wake(); });
    lease.is_sought = lease.remote != nullptr && !lease.remote->is_settled();
  }
  if (lease.is_held_elsewhere()) {
    lease.candidate = request;
    return wait_for(added, request);
  }
  table_.make_builder(added, request, std::move(pidfd));
  if (!has_waited) lease.lookups_of_wait = 0;
  return {Advice::kBuildWithLease, 0};
}

void Flights::wait(NodeIndex placeholder, const std::shared_ptr<FlightWait>& wait) {
  const bool waits = [&] {
    const MutexLock lock(table_.mutex);
    if (begin_wait(placeholder, wait)) return true;
    table_.note_unwaited(placeholder, wait->request());
    return false;
  }();
  if (!waits) return wait->answer();
  counters_.flight_waits.fetch_add(1, std::memory_order_relaxed);
  task_.wake();  // starts the wait's timer, and handles an interrupt that came before the wait
}

bool Flights::begin_wait(NodeIndex placeholder, const std::shared_ptr<FlightWait>& wait) {
  const LeaseRequest& request = wait->request();
  const auto found = table_.find_by_placeholder(placeholder);
  if (found == table_.leases.end() || request.lineage.empty()) return false;
  Lease& lease = found->second;
  if (lease.candidate && lease.candidate->process() == request.process()) lease.candidate.reset();
  if (lease.is_built_by(request.lineage)) return false;
  auto charge = Charge::take(request.account, Limit::kWaiters);
  if (!charge || closes_cycle(table_.leases, request.lineage, lease)) {
    lease.builders.push_back(request.process());
    return false;
  }
  wait->set_charge(*std::move(charge));
  wait->begin(found->first.first, options_.now(), options_.timeout, task_);
  lease.waits.push_back(wait);
  return true;
}

// A thread that begins an entry whose rule has `one_by_one` has given up its earlier builds of that rule. So these
// builds count as failed, and their leases end.
void Flights::fail_others_of(const LeaseRequest& request) {
  if (request.rule == nullptr) return;
  for (auto it = table_.leases.begin(); it != table_.leases.end();) {
    const auto found = it++;
    const Lease& lease = found->second;
    if (!lease.is_built_by_thread_of(request)) continue;
    const bool is_other = lease.rule == request.rule && lease.entry != request.entry;
    if (is_other && !table_.is_settling(lease)) table_.fail(found);
  }
}

void Flights::note_open(const LeaseRequest& request) {
  FlightAnswers answers;
  {
    const MutexLock lock(table_.mutex);
    fail_others_of(request);
    answers = table_.take_answers();
  }
  send_answers(answers);
}

void Flights::give_up(const LeaseRequest& request) {
  FlightAnswers answers;
  {
    const MutexLock lock(table_.mutex);
    const auto found = table_.find(request);
    if (found != table_.leases.end() && found->second.builder == request.process())
      table_.erase(found);
    answers = table_.take_answers();
  }
  send_answers(answers);
}

void Flights::note_step(const Job& job, const std::string& entry, BuildStep step) {
  FlightAnswers answers;
  {
    const MutexLock lock(table_.mutex);
    const std::string below = entry + '/';
    for (auto it = table_.leases.lower_bound({below, nullptr}); it != table_.leases.end();) {
      const auto found = it++;
      if (!found->first.first.starts_with(below)) break;
      Lease& lease = found->second;
      if (lease.job.get() != &job || !lease.builder) continue;
      lease.has_begun = true;
      lease.has_part |= step == BuildStep::kPart;
      if (step == BuildStep::kCleared && !lease.has_part) table_.fail(found);
    }
    answers = table_.take_answers();
  }
  send_answers(answers);
}

void Flights::finished(const Job& job, const std::string& path) {
  if (!any() && !table_.remembers_failures()) return;
  FlightAnswers answers;
  bool is_to_be_checked = false;
  {
    const MutexLock lock(table_.mutex);
    is_to_be_checked = note_finished(job, path);
    answers = table_.take_answers();
  }
  send_answers(answers);
  if (is_to_be_checked) task_.wake();
}

// Handles `path` and the names below it, which are finished now. If a name has waiters, marks its lease for
// FlightTender. Otherwise ends the lease if the builder belongs to this job. Returns true if any of the finished names
// has waiters.
bool Flights::note_finished(const Job& job, const std::string& path) {
  table_.forget_failures(path);
  bool have_waiters = false;
  for (auto it = table_.leases.lower_bound({path, nullptr}); it != table_.leases.end();) {
    const auto at = it++;
    const std::string& name = at->first.first;
    if (!name.starts_with(path)) break;
    if (name.size() > path.size() && name[path.size()] != '/') continue;
    Lease& lease = at->second;
    if (lease.waits.empty() && lease.job.get() == &job) {
      table_.erase(at);
    } else if (!lease.waits.empty()) {
      lease.finished.insert(job.shared_from_this());
      lease.is_finished |= lease.job.get() == &job;
      have_waiters = true;
    }
  }
  return have_waiters;
}

void Flights::note_published(uid_t uid) {
  const MutexLock lock(table_.mutex);
  table_.exclusion.note_published(uid);
}

std::vector<uid_t> Flights::excluded_users() const {
  const MutexLock lock(table_.mutex);
  return table_.exclusion.list();
}

std::vector<FlightDescription> Flights::describe() const {
  const MutexLock lock(table_.mutex);
  std::vector<FlightDescription> all;
  for (const auto& [key, lease] : table_.leases) {
    std::set<std::string> waiting_jobs;
    for (const auto& wait : lease.waits) waiting_jobs.insert(wait->request().job->id);
    all.push_back({key.first,
                   key.second != nullptr ? key.second->id : std::string(),
                   lease.builder.value_or(Process()).pid,
                   lease.is_sought,
                   lease.waits.size(),
                   lease.builder && lease.job != nullptr ? lease.job->id : std::string(),
                   {waiting_jobs.begin(), waiting_jobs.end()}});
  }
  return all;
}

}  // namespace cacheshim
