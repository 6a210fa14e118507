// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_queue.h"

#include <algorithm>
#include <cerrno>

namespace cacheshim {
namespace {

bool is_busy(int error) { return error == EWOULDBLOCK || error == EACCES; }

}  // namespace

// Tries the request. If the lock is refused, drops conflicting locks that were released without an event, and tries
// again. If it has dropped any, sets `is_any_dropped`: the caller must then try the waiting requests.
int LockQueue::try_set(const LockRequest& request, bool& is_any_dropped) {
  const int error = owners.try_set(request);
  if (!is_busy(error) || !owners.drop_stale(request)) return error;
  is_any_dropped = true;
  return owners.try_set(request);
}

bool LockQueue::must_queue(const LockRequest& request) const {
  if (!request.waits || request.type == F_UNLCK || owners.has_lock(request)) return false;
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
    return conflict(range_of(request), range_of(waiter.request));
  });
}

int LockQueue::try_request(const LockRequest& request, Answers& answers) {
  if (must_queue(request)) return EINPROGRESS;
  const bool was_known = owners.refresh(request);
  bool is_any_dropped = false;
  int error = try_set(request, is_any_dropped);
  // The request may have released or downgraded its owner's lock, or lost it in a failed conversion.
  if (was_known || is_any_dropped) pump(answers);
  // pump() may have granted a waiting request that replaced the conflicting lock with a weaker one. So try this request
  // again. If it is granted, it may in turn have weakened a lock that blocks other requests.
  if (is_busy(error) && !answers.empty()) {
    error = owners.try_set(request);
    if (!is_busy(error)) pump(answers);
  }
  if (!is_busy(error)) return error;
  if (request.waits || (waiters_.empty() && owners.may_be_free_soon(request))) return EINPROGRESS;
  return EAGAIN;
}

void LockQueue::add_waiter(const LockRequest& request, std::unique_ptr<LockReply> reply,
                           std::uint64_t ticket, Charge charge) {
  std::optional<Clock::time_point> until;
  if (!request.waits) until = system_.now() + kGrace;
  waiters_.push_back({request, std::move(reply), ticket, until, std::move(charge)});
}

void LockQueue::pump(Answers& answers) {
  while (grant_waiters(answers)) continue;
}

// Tries the waiting requests in order, except those behind a refused one. A request for the whole file is behind every
// earlier one for the whole file; a record lock request is behind the earlier ones with which it conflicts. Returns
// true if an earlier request might be granted now, because a granted request may have replaced its owner's exclusive
// lock with a shared lock.
bool LockQueue::grant_waiters(Answers& answers) {
  bool is_any_weakened = false;
  // The value is not used: even if an attempt drops a lock, other locks still block the requests before it.
  bool is_any_dropped = false;
  bool is_any_flock_refused = false;
  LockRanges refused;  // record locks
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const LockRequest& request = waiter->request;
    const bool is_behind = request.is_record ? refused.conflicts_with(range_of(request))
                                             : is_any_flock_refused;
    const bool weakens = request.type == F_RDLCK && owners.has_lock(request);
    const int error = is_behind ? EAGAIN : try_set(request, is_any_dropped);
    if (is_busy(error)) {
      is_any_flock_refused |= !request.is_record;
      if (request.is_record && !is_behind) refused.add(range_of(request));
      ++waiter;
      continue;
    }
    is_any_weakened |= weakens && (is_any_flock_refused || !refused.empty());
    answers.emplace_back(std::move(waiter->reply), error);
    waiter = waiters_.erase(waiter);
  }
  return is_any_weakened;
}

int LockQueue::find(const LockRequest& request, struct flock& lock, Answers& answers) {
  if (owners.drop_stale(request)) pump(answers);
  return owners.find(request, lock);
}

void LockQueue::closed(std::uint64_t handle, std::uint64_t owner, Answers& answers) {
  if (owners.closed(handle, owner)) pump(answers);
}

void LockQueue::released(std::uint64_t handle, Answers& answers) {
  if (owners.released(handle)) pump(answers);
}

void LockQueue::withdraw(std::uint64_t ticket, int error, Answers& answers) {
  const auto found = std::find_if(waiters_.begin(), waiters_.end(),
                                  [&](const Waiter& waiter) { return waiter.ticket == ticket; });
  if (found == waiters_.end()) return;  // the request has been answered in the meantime
  answers.emplace_back(std::move(found->reply), error);
  waiters_.erase(found);
  pump(answers);
}

void LockQueue::poll(Answers& answers) {
  pump(answers);
  const std::size_t before = waiters_.size();
  const auto now = system_.now();
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (waiter->until && (*waiter->until <= now || !owners.may_be_free_soon(waiter->request))) {
      answers.emplace_back(std::move(waiter->reply), EAGAIN);
      waiter = waiters_.erase(waiter);
    } else {
      ++waiter;
    }
  }
  if (waiters_.size() < before) pump(answers);  // tries the requests that were behind the removed ones
}

void LockQueue::refuse_all(int error, Answers& answers) {
  for (Waiter& waiter : waiters_) {
    answers.emplace_back(std::move(waiter.reply), waiter.until ? EAGAIN : error);
  }
  waiters_.clear();
}

void LockQueue::add_blockers(const std::set<std::uint64_t>& waiting,
                             std::set<std::uint64_t>& blockers) const {
  for (const Waiter& waiter : waiters_) {
    const LockRequest& request = waiter.request;
    if (!request.is_record || waiter.until || !waiting.contains(request.owner)) continue;
    owners.add_blockers(request, blockers);
  }
}

void LockQueue::add_waiting(std::set<std::uint64_t>& handles, std::set<pid_t>& processes) const {
  for (const Waiter& waiter : waiters_) {
    handles.insert(waiter.request.handle);
    processes.insert(waiter.request.process);
  }
}

bool LockQueue::is_wanted_by_others(pid_t process) const {
  return owners.has_lock_of_others(process) ||
         std::any_of(waiters_.begin(), waiters_.end(),
                     [&](const Waiter& waiter) { return waiter.request.process != process; });
}

// Of the requests for the whole file, checks only the first, because the others wait for it.
bool LockQueue::needs_poll() const {
  bool first_seen = false;
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) REQUIRES(mutex) {
    if (waiter.until) return true;
    const bool is_behind = !waiter.request.is_record && first_seen;
    first_seen |= !waiter.request.is_record;
    if (is_behind) return false;
    return owners.may_end_unreported(waiter.request);
  });
}

}  // namespace cacheshim
