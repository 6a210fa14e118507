// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/flights.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "fuse/jobs/job.h"
#include "store/sys/guard.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMostWaited =
    4096;  // threads that have not come again: they have exited or lost interest

// A builder is expected for twice as long as its follower took to request the next name, because
// both share the processors with all other followers.
constexpr auto kShortestExpected = std::chrono::milliseconds(25);
constexpr auto kLongestExpected = std::chrono::milliseconds(60);
constexpr auto kLongestStep =
    std::chrono::milliseconds(250);  // otherwise it will not request the next one

}  // namespace

void Flights::Wait::interrupt() {
  interrupted_ = true;
  const int event = wake_event_;
  if (event >= 0) (void)::eventfd_write(event, 1);  // fails only if the thread is already awake
}

Flights::Flights(Options options, NodeTable& nodes, Counters& counters)
    : options_(std::move(options)),
      nodes_(nodes),
      counters_(counters),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeUpSerial;
  (void)::epoll_ctl(events_.get(), EPOLL_CTL_ADD, wake_event_.get(), &event);
  if (options_.has_thread) thread_ = std::thread([this] { run(); });
}

Flights::~Flights() {
  close().give();
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

PendingReplies Flights::close() {
  Answers answers;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    while (!leases_.empty()) erase(leases_.begin(), answers);
  }
  PendingReplies replies;
  replies.add([answers = std::move(answers)] { give(answers); });
  return replies;
}

void Flights::reopen() {
  const MutexLock lock(mutex_);
  closed_ = false;
}

void Flights::wake() const {
  (void)::eventfd_write(wake_event_.get(), 1);  // fails only if the thread is already awake
}

void Flights::give(const Answers& answers) {
  for (const auto& wait : answers) (void)run_guarded("a waiter's answer", wait->answer_);
}

bool Flights::builds(const Lease& lease, const Lineage& lineage) {
  if (lease.leader && contains(lineage, *lease.leader)) return true;
  return std::any_of(lease.builders.begin(), lease.builders.end(),
                     [&](const Process& builder) { return contains(lineage, builder); });
}

// A lease for all jobs takes precedence over that of a job that does not publish.
Flights::Leases::iterator Flights::find(const LeaseRequest& request) {
  const auto of_all = leases_.find({request.path, nullptr});
  return of_all != leases_.end() ? of_all : leases_.find({request.path, request.job});
}

Flights::Answer Flights::look(const LeaseRequest& request) {
  Answers answers;
  const Answer answer = [&]() -> Answer {
    const MutexLock lock(mutex_);
    const bool has_waited = has_just_waited(request);
    fail_others_of(request, answers);
    if (failed_.has(request.path, options_.now())) return {Advice::kBuild, 0};
    const auto found = find(request);
    if (found == leases_.end()) return open_lease(request, answers);
    Lease& lease = found->second;
    if (returns_without_a_step(lease, request)) {
      fail(found, answers);
      return {Advice::kBuild, 0};
    }
    if (lease.expected && contains(request.lineage, *lease.expected)) {
      if (auto watched = options_.watch(self(request))) {
        return lead(lease, found->first, request, std::move(watched), answers);
      }
    }
    if (only_looks(lease, request) && !lease.waits.empty()) {
      lease.builders.push_back(self(request));
      hand_over(found, answers);
      return {Advice::kBuild, 0};
    }
    if (builds(lease, request.lineage)) return {Advice::kBuild, 0};
    if (has_waited || closes_cycle(request.lineage, lease)) {
      lease.builders.push_back(self(request));
      return {Advice::kBuild, 0};
    }
    return {Advice::kWait, placeholder_of(found->first, lease, request.job)};
  }();
  give(answers);
  return answer;
}

// The kernel looks the name up once more after a wait, and does not accept a second ESTALE.
bool Flights::has_just_waited(const LeaseRequest& request) {
  const auto waited = waited_.find(request.thread);
  if (waited == waited_.end()) return false;
  const bool is_same = waited->second == request.path;
  waited_.erase(waited);
  return is_same;
}

// Whether the process may hold one more lease.
bool Flights::makes_room(const Process& builder, Answers& answers) {
  if (leases_.size() >= kMostLeases) return false;
  std::size_t led = 0;
  auto oldest = leases_.end();
  for (auto at = leases_.begin(); at != leases_.end(); ++at) {
    const Lease& lease = at->second;
    if (lease.leader != builder) continue;
    ++led;
    const bool is_older = oldest == leases_.end() || lease.serial < oldest->second.serial;
    if (lease.waits.empty() && is_older) oldest = at;
  }
  if (led < kMostLed) return true;
  if (oldest == leases_.end()) return false;
  erase(oldest, answers);
  return true;
}

Flights::Answer Flights::open_lease(const LeaseRequest& request, Answers& answers) {
  if (closed_) return {Advice::kBuild, 0};
  auto watched = options_.watch(self(request));
  if (!watched || !makes_room(self(request), answers)) return {Advice::kBuild, 0};
  const Key key{request.path, request.publishes ? nullptr : request.job};
  auto file = request.publishes ? options_.leases.try_take(request.path) : UniqueFd();
  Lease& lease = leases_[key];
  ++lease_count_;
  lease.entry = request.entry;
  lease.rule = request.rule;
  lease.is_entry = request.is_entry();
  lease.is_others = !file;
  if (lease.is_others) return {Advice::kWait, placeholder_of(key, lease, request.job)};
  lease.file = *std::move(file);
  if (expect_builder(lease, request))
    return {Advice::kWait, placeholder_of(key, lease, request.job)};
  const Answer answer = lead(lease, key, request, std::move(watched), answers);
  lease.last_look = options_.now();
  return answer;
}

bool Flights::expect_builder(Lease& lease, const LeaseRequest& request) {
  const auto known = followers_.find(self(request).pid);
  if (known == followers_.end() || !known->second.expects) return false;
  const Follower follower = known->second;
  const auto now = options_.now();
  const auto step = std::chrono::duration_cast<std::chrono::milliseconds>(now - follower.since);
  if (step > kLongestStep || contains(request.lineage, follower.builder)) return false;
  if (is_busy(follower.builder) || options_.is_stopped(follower.builder)) return false;
  if (!options_.watch(follower.builder)) return false;
  lease.expected = follower.builder;
  lease.expected_until = now + std::clamp(2 * step, kShortestExpected, kLongestExpected);
  lease.expecting = self(request).pid;
  wake();  // to look when that is over
  return true;
}

// Whether the process already builds or waits.
bool Flights::is_busy(const Process& process) const {
  return std::any_of(leases_.begin(), leases_.end(), [&](const auto& each) {
    const Lease& lease = each.second;
    return lease.leader == process ||
           std::any_of(lease.waits.begin(), lease.waits.end(),
                       [&](const auto& wait) { return contains(wait->request_.lineage, process); });
  });
}

Flights::Answer Flights::lead(Lease& lease, const Key& key, const LeaseRequest& request,
                              UniqueFd watched, Answers& answers) {
  serials_.erase(lease.serial);
  Job* const before = std::exchange(lease.job, request.job);
  lease.leader = self(request);
  lease.expected.reset();
  if (lease.rule != nullptr) {
    note_building(before);
    note_building(lease.job);
  }
  const auto thread = stat_of(request.thread);
  lease.thread = {request.thread, thread ? thread->start_time : 0};
  lease.since = options_.now();
  lease.next_check = lease.since;
  lease.activity.forget();
  lease.is_finished = false;
  lease.has_begun = false;
  lease.has_part = false;
  lease.looks = 0;
  lease.last_look.reset();
  lease.watched = std::move(watched);
  lease.serial = next_serial_++;
  serials_[lease.serial] = key;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = lease.serial;
  // If this fails, the daemon does not see the builder's end, and waiters wait until their timeout.
  (void)::epoll_ctl(events_.get(), EPOLL_CTL_ADD, lease.watched.get(), &event);
  counters_.flight_leases.fetch_add(1, std::memory_order_relaxed);
  if (lease.is_entry) wake();  // to watch the builder
  // The builder's own threads and descendants may have begun to wait before it became the builder.
  for (auto wait = lease.waits.begin(); wait != lease.waits.end();) {
    const auto at = wait++;
    if (contains((*at)->request_.lineage, *lease.leader)) release(lease, at, true, answers);
  }
  return {Advice::kLead, 0};
}

NodeIndex Flights::placeholder_of(const Key& key, Lease& lease, Job* job) {
  const auto known = lease.placeholders.find(job);
  if (known != lease.placeholders.end()) {
    nodes_.count_lookup(known->second);
    return known->second;
  }
  // One lookup count of ours, so that the node lives as long as the lease, and one of the kernel's.
  const NodeIndex node = nodes_.intern_nameless(job, {}, UniqueFd());
  nodes_.count_lookup(node);
  lease.placeholders[job] = node;
  placeholders_[node] = key;
  return node;
}

// Whether a builder, such as that of `lease`, already waits for the caller. It is enough that a
// descendant of the builder does, because the builder may wait for that; or that the caller works
// for the process that is waited for.
bool Flights::closes_cycle(const Lineage& caller, const Lease& lease) const {
  std::set<const Lease*> seen{&lease};
  std::vector<const Lease*> open{&lease};
  while (!open.empty()) {
    const Lease* const at = open.back();
    open.pop_back();
    if (!at->leader) continue;
    if (at != &lease && contains(caller, *at->leader)) return true;
    for (const auto& [key, other] : leases_) {
      const bool is_waited_for = std::any_of(
          other.waits.begin(), other.waits.end(),
          [&](const auto& wait) { return contains(wait->request_.lineage, *at->leader); });
      if (is_waited_for && seen.insert(&other).second) open.push_back(&other);
    }
  }
  return false;
}

void Flights::wait(NodeIndex placeholder, const std::shared_ptr<Wait>& wait) {
  const bool waits = [&] {
    const MutexLock lock(mutex_);
    const auto place = placeholders_.find(placeholder);
    if (place == placeholders_.end() || wait->request_.lineage.empty()) return false;
    const auto found = leases_.find(place->second);
    if (found == leases_.end()) return false;
    Lease& lease = found->second;
    wait->request_.path = place->second.first;
    if (builds(lease, wait->request_.lineage)) return false;
    if (closes_cycle(wait->request_.lineage, lease)) {
      lease.builders.push_back(self(wait->request_));
      return false;
    }
    wait->deadline_ = options_.now() + options_.timeout;
    wait->wake_event_ = wake_event_.get();
    lease.waits.push_back(wait);
    return true;
  }();
  if (!waits) return wait->answer_();
  counters_.flight_waits.fetch_add(1, std::memory_order_relaxed);
  wake();  // the thread must start its timer, and handle an earlier interrupt
}

void Flights::release(Lease& lease, Waits::iterator wait, bool as_builder, Answers& answers) {
  const LeaseRequest& request = (*wait)->request_;
  if (as_builder) lease.builders.push_back(self(request));
  if (waited_.size() >= kMostWaited) waited_.clear();
  waited_[request.thread] = request.path;
  answers.push_back(*wait);
  lease.waits.erase(wait);
}

void Flights::note_builder(const LeaseRequest& request, const Process& builder) {
  if (followers_.size() >= kMostWaited) followers_.clear();
  Follower& follower = followers_[self(request).pid];
  follower.builder = builder;
  follower.since = options_.now();
}

// Makes the process that has waited longest the builder; without a waiter the lease ends.
void Flights::hand_over(Leases::iterator found, Answers& answers) {
  auto& [key, lease] = *found;
  while (!lease.waits.empty()) {
    const auto first = lease.waits.begin();
    const LeaseRequest request = (*first)->request_;
    const bool leads = key.second != nullptr || request.publishes;
    auto watched = leads ? options_.watch(self(request)) : UniqueFd();
    const bool is_alive = static_cast<bool>(watched);
    release(lease, first, !is_alive, answers);
    if (is_alive) return (void)lead(lease, key, request, std::move(watched), answers);
  }
  erase(found, answers);
}

void Flights::erase(Leases::iterator found, Answers& answers) {
  auto& [key, lease] = *found;
  while (!lease.waits.empty()) release(lease, lease.waits.begin(), false, answers);
  serials_.erase(lease.serial);
  for (const auto& [job, node] : lease.placeholders) {
    placeholders_.erase(node);
    nodes_.forget(node, 1);
  }
  options_.leases.release(key.first, std::move(lease.file));
  Job* const builds_less = lease.rule != nullptr ? lease.job : nullptr;
  leases_.erase(found);
  --lease_count_;
  note_building(builds_less);
}

void Flights::give_up(const LeaseRequest& request) {
  Answers answers;
  {
    const MutexLock lock(mutex_);
    const auto found = find(request);
    if (found != leases_.end() && found->second.leader == self(request)) erase(found, answers);
  }
  give(answers);
}

void Flights::finished(const Job& job, const std::string& path) {
  if (!any() && !remembers_failures_) return;
  Answers answers;
  bool is_to_be_checked = false;
  {
    const MutexLock lock(mutex_);
    failed_.forget(path);
    remembers_failures_ = !failed_.empty();
    for (auto it = leases_.lower_bound({path, nullptr}); it != leases_.end();) {
      const auto at = it++;
      const std::string& name = at->first.first;
      if (!name.starts_with(path)) break;
      if (name.size() > path.size() && name[path.size()] != '/') continue;
      Lease& lease = at->second;
      if (lease.waits.empty() && lease.job == &job) {
        erase(at, answers);
      } else if (!lease.waits.empty()) {
        lease.finished.insert(&job);
        lease.is_finished |= lease.job == &job;
        is_to_be_checked = true;
      }
    }
  }
  give(answers);
  if (is_to_be_checked) wake();
}

std::vector<Flights::Description> Flights::describe() const {
  const MutexLock lock(mutex_);
  std::vector<Description> all;
  for (const auto& [key, lease] : leases_) {
    std::set<std::string> waiting_jobs;
    for (const auto& wait : lease.waits) waiting_jobs.insert(wait->request_.job->id);
    const auto& leading = lease.leader ? lease.leader : lease.expected;
    all.push_back({key.first,
                   key.second != nullptr ? key.second->id : std::string(),
                   leading.value_or(Process()).pid,
                   lease.waits.size(),
                   lease.leader && lease.job != nullptr ? lease.job->id : std::string(),
                   {waiting_jobs.begin(), waiting_jobs.end()}});
  }
  return all;
}

}  // namespace cacheshim
