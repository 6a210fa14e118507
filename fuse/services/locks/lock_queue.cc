// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_queue.h"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// If a descriptor was closed longer ago than this and no RELEASE has arrived, a duplicate of it is
// still open.
constexpr std::chrono::milliseconds kLeavingFor{100};

bool is_busy(int error) { return error == EWOULDBLOCK || error == EACCES; }

int flock_operation(short type) {
  if (type == F_UNLCK) return LOCK_UN;
  return (type == F_WRLCK ? LOCK_EX : LOCK_SH) | LOCK_NB;
}

struct flock range_of(const LockRequest& request) {
  struct flock range {};
  range.l_type = request.type;
  range.l_whence = SEEK_SET;
  range.l_start = request.start;
  range.l_len = request.length;
  return range;
}

off_t end_of(off_t start, off_t length) {
  return length == 0 ? std::numeric_limits<off_t>::max() : start + length;
}

int set_lock(int fd, const LockRequest& request) {
  if (request.is_record) {
    struct flock range = range_of(request);
    return ::fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : errno;
  }
  return ::flock(fd, flock_operation(request.type)) == 0 ? 0 : errno;
}

int find_lock(int fd, struct flock& lock) {
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 ? 0 : errno;
}

}  // namespace

LockSystem LockSystem::real() {
  return {set_lock,
          find_lock,
          cacheshim::has_ended,
          descriptors_of,
          cacheshim::has_descriptor,
          lock_call_arguments,
          [] { return true; },
          [] { return LockQueue::Clock::now(); }};
}

bool LockQueue::conflict(const LockRequest& request, bool is_record, const Range& range) {
  if (request.is_record != is_record) return false;
  if (request.type != F_WRLCK && range.type != F_WRLCK) return false;
  if (!is_record) return true;
  return request.start < end_of(range.start, range.length) &&
         range.start < end_of(request.start, request.length);
}

// Each owner has a descriptor of its own, by which the kernel identifies it. Read-only if that
// works, so that closing it causes no event for watchers.
Result<LockQueue::Owner*> LockQueue::ensure_owner(const LockRequest& request) {
  Owner& owner = owners_[{request.is_record, request.owner}];
  if (!owner.fd) {
    auto fd = sys::reopen(file_.get(), request.is_record ? O_RDWR : O_RDONLY);
    if (!fd && request.is_record) fd = sys::reopen(file_.get(), O_RDONLY);
    if (!fd) {
      owners_.erase({request.is_record, request.owner});
      return fd.error();
    }
    owner.fd = *std::move(fd);
  }
  if (std::find(owner.handles.begin(), owner.handles.end(), request.handle) ==
      owner.handles.end()) {
    owner.handles.push_back(request.handle);
  }
  if (request.type != F_UNLCK) owner.process = request.process;
  owner.shown_inode = request.shown_inode;
  owner.tells_close = request.tells_close;
  owner.closed_at = {};
  return &owner;
}

bool LockQueue::covers(const LockRequest& request, const Range& range) {
  return request.start <= range.start &&
         end_of(range.start, range.length) <= end_of(request.start, request.length);
}

// Removes the bytes of `request` from `ranges`; keeps the bytes before and after them.
void LockQueue::subtract(std::vector<Range>& ranges, const LockRequest& request) {
  const off_t end = end_of(request.start, request.length);
  std::vector<Range> left;
  for (const Range& range : ranges) {
    const off_t range_end = end_of(range.start, range.length);
    if (range.start < request.start) {
      const off_t until = std::min(range_end, request.start);
      left.push_back({range.type, range.start, until - range.start});
    }
    if (range_end <= end) continue;
    const off_t from = std::max(range.start, end);
    const bool has_no_end = range.length == 0;
    left.push_back({range.type, from, has_no_end ? 0 : range_end - from});
  }
  ranges = std::move(left);
}

// Records the locks that the kernel has granted.
void LockQueue::remember(Owner& owner, const LockRequest& request, int error) {
  const Range range{request.type, request.start, request.length};
  if (!request.is_record) {
    owner.held.clear();  // as flock(2) says, a failed conversion loses the old lock
    if (error == 0 && request.type != F_UNLCK) owner.held.push_back(range);
    return;
  }
  if (error != 0) return;
  subtract(owner.held, request);
  if (request.type != F_UNLCK) owner.held.push_back(range);
}

int LockQueue::try_set(const LockRequest& request) {
  if (request.type == F_UNLCK && !owners_.contains({request.is_record, request.owner})) return 0;
  const auto found = ensure_owner(request);
  if (!found) return found.error().code();
  Owner& owner = **found;
  int error = system_.set(owner.fd.get(), request);
  // NFS implements an exclusive flock as a record lock, which requires a writable descriptor
  if (error == EBADF) {
    auto writer = sys::reopen(file_.get(), O_RDWR);
    if (!writer) return writer.error().code();
    owner.fd = *std::move(writer);
    error = system_.set(owner.fd.get(), request);
  }
  if (error == 0 && request.type != F_UNLCK && owner.held.empty()) note_descriptors(owner, request);
  remember(owner, request, error);
  return error;
}

// Closing the descriptor is not enough: a process that the daemon has just forked may briefly have
// a copy, and with it the locks, and no event would report when it is closed.
LockQueue::Owners::iterator LockQueue::drop(Owners::iterator known) {
  const auto& [key, owner] = *known;
  if (!owner.held.empty()) {
    LockRequest all;  // bytes
    all.is_record = key.first;
    (void)system_.set(owner.fd.get(), all);
  }
  return owners_.erase(known);
}

// Called after the first lock, and not before each attempt: it reads /proc several times.
void LockQueue::note_descriptors(Owner& owner, const LockRequest& request) const {
  owner.descriptors.clear();
  owner.ends_with_one = false;
  if (!request.is_record || !request.others_close_unseen) return;
  const LockCallArguments call = system_.arguments(request.thread);
  owner.ends_with_one = call.kind == LockCallKind::kOfProcess;
  if (owner.ends_with_one) {
    owner.descriptors = system_.descriptors(request.process, request.shown_inode, call.descriptor);
  }
}

// As try_set(). If the lock is refused, drops conflicting locks whose release no event reported, and
// tries again. Sets `is_any_dropped` if it dropped any: the caller must then try the waiting requests.
int LockQueue::try_set_again(const LockRequest& request, bool& is_any_dropped) {
  const int error = try_set(request);
  if (!is_busy(error) || !drop_stale(request)) return error;
  is_any_dropped = true;
  return try_set(request);
}

// Whether the process has closed one of the descriptors. If there are many, each call checks
// others, so that repeated requests find a closed one.
bool LockQueue::has_closed_one(const Owner& owner) const {
  const std::size_t count = owner.descriptors.size();
  for (std::size_t looks = 0; looks < std::min(count, kMostLooks); ++looks) {
    owner.next_look = (owner.next_look + 1) % count;
    if (!system_.has_descriptor(owner.process, owner.descriptors[owner.next_look])) return true;
  }
  return false;
}

// Whether the owner has lost its record locks: its process has closed a descriptor, or has exited
// while a child keeps the file open.
bool LockQueue::has_lost_locks(const Owner& owner) const {
  if (owner.ends_with_one && !owner.descriptors.empty()) return has_closed_one(owner);
  return !owner.tells_close && system_.has_ended(owner.process);
}

// Drops conflicting record locks whose owners have lost them. Returns whether it dropped any. Stops at the first
// conflicting owner that still has its locks, because the request must wait for this owner in any case.
bool LockQueue::drop_stale(const LockRequest& request) {
  if (!request.is_record) return false;
  bool is_any_dropped = false;
  for (auto known = owners_.begin(); known != owners_.end();) {
    if (!is_in_the_way(request, known->first, known->second)) {
      ++known;
    } else if (has_lost_locks(known->second)) {
      known = drop(known);
      is_any_dropped = true;
    } else {
      break;
    }
  }
  return is_any_dropped;
}

bool LockQueue::must_queue(const LockRequest& request) const {
  if (!request.waits || request.type == F_UNLCK) return false;
  for (const auto& [key, owner] : owners_) {
    const bool is_own = key.second == request.owner || owner.process == request.process;
    if (key.first == request.is_record && is_own && !owner.held.empty()) return false;
  }
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
    const LockRequest& other = waiter.request;
    return conflict(request, other.is_record, {other.type, other.start, other.length});
  });
}

bool LockQueue::is_in_the_way(const LockRequest& request, const OwnerKey& key,
                              const Owner& owner) const {
  return key != OwnerKey{request.is_record, request.owner} &&
         std::any_of(owner.held.begin(), owner.held.end(),
                     [&](const Range& range) { return conflict(request, key.first, range); });
}

bool LockQueue::is_held_against(const LockRequest& request) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) REQUIRES(mutex) {
    return is_in_the_way(request, known.first, known.second);
  });
}

// Call after drop_stale(), which has found that a process still has its record locks.
bool LockQueue::may_leave_soon(const Owner& owner) const {
  if (owner.tells_close) return system_.now() - owner.closed_at < kLeavingFor;
  const bool is_known = owner.ends_with_one && !owner.descriptors.empty();
  return !is_known && system_.is_releasing();
}

// Whether all conflicting owners may be about to release their locks.
bool LockQueue::may_be_free_soon(const LockRequest& request) const {
  const auto stays = [&](const auto& known) REQUIRES(mutex) {
    return is_in_the_way(request, known.first, known.second) && !may_leave_soon(known.second);
  };
  return is_held_against(request) && std::none_of(owners_.begin(), owners_.end(), stays);
}

// Whether conflicting record locks may be released without an event.
bool LockQueue::may_end_unseen(const LockRequest& request) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) REQUIRES(mutex) {
    const auto& [key, owner] = known;
    return (!owner.tells_close || owner.ends_with_one) && is_in_the_way(request, key, owner);
  });
}

int LockQueue::ask(const LockRequest& request, Answers& answers) {
  if (must_queue(request)) return EINPROGRESS;
  const auto known = owners_.find({request.is_record, request.owner});
  const bool had_lock = known != owners_.end();
  if (had_lock && known->second.ends_with_one && has_closed_one(known->second)) {
    drop(known);
  }
  bool is_any_dropped = false;
  int error = try_set_again(request, is_any_dropped);
  // The owner's lock may have been released, downgraded, or lost by a failed conversion.
  if (had_lock || is_any_dropped) pump(answers);
  // A waiting request that pump() has granted may have replaced the conflicting lock by a weaker
  // one. Granting this request may do the same for others.
  if (is_busy(error) && !answers.empty()) {
    error = try_set(request);
    if (!is_busy(error)) pump(answers);
  }
  if (!is_busy(error)) return error;
  if (request.waits || (waiters_.empty() && may_be_free_soon(request))) return EINPROGRESS;
  return EAGAIN;
}

void LockQueue::add_waiter(const LockRequest& request, std::unique_ptr<LockCall> call,
                           std::uint64_t ticket) {
  std::optional<Clock::time_point> until;
  if (!request.waits) until = system_.now() + kGrace;
  waiters_.push_back({request, std::move(call), ticket, until});
}

void LockQueue::pump(Answers& answers) {
  while (grant_waiters(answers)) continue;
}

// Grants waiting requests in order: the first one, and every record lock request that conflicts with no
// earlier request. Returns true if an earlier one may be granted now: a request that was granted has
// replaced its owner's exclusive lock by a shared one.
bool LockQueue::grant_waiters(Answers& answers) {
  bool is_any_weakened = false;
  // Not used: the requests before the one that has dropped a lock still have other locks in their way.
  bool is_any_dropped = false;
  std::vector<LockRequest> refused;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const LockRequest& request = waiter->request;
    const bool is_behind =
        std::any_of(refused.begin(), refused.end(), [&](const LockRequest& first) {
          return first.is_record == request.is_record &&
                 (!request.is_record ||
                  conflict(request, true, {first.type, first.start, first.length}));
        });
    const auto known = owners_.find({request.is_record, request.owner});
    const bool weakens =
        request.type == F_RDLCK && known != owners_.end() && !known->second.held.empty();
    const int error = is_behind ? EAGAIN : try_set_again(request, is_any_dropped);
    if (is_busy(error)) {
      if (!is_behind) refused.push_back(request);
      ++waiter;
      continue;
    }
    is_any_weakened |= weakens && !refused.empty();
    answers.emplace_back(std::move(waiter->call), error);
    waiter = waiters_.erase(waiter);
  }
  return is_any_weakened;
}

int LockQueue::find(const LockRequest& request, struct flock& lock, Answers& answers) {
  if (drop_stale(request)) pump(answers);  // before ensure_owner(): may drop any owner
  const auto owner = ensure_owner(request);
  if (!owner) return owner.error().code();
  lock = range_of(request);
  const int error = system_.find((*owner)->fd.get(), lock);
  if (error != 0 || lock.l_type == F_UNLCK || lock.l_pid > 0) return error;
  // The lock is one of this queue: the kernel knows its descriptor but no process. Find the process
  // of its owner.
  LockRequest there = request;
  there.start = lock.l_start;
  there.length = lock.l_len;
  there.type = F_WRLCK;
  for (const auto& [key, other] : owners_) {
    for (const Range& range : other.held) {
      if (key.second != request.owner && conflict(there, key.first, range))
        lock.l_pid = other.process;
    }
  }
  return 0;
}

void LockQueue::closed(std::uint64_t handle, std::uint64_t owner, Answers& answers) {
  const auto held = owners_.find({false, handle});
  if (held != owners_.end()) held->second.closed_at = system_.now();
  const auto records = owners_.find({true, owner});
  if (records == owners_.end()) return;
  drop(records);
  pump(answers);
}

void LockQueue::released(std::uint64_t handle, Answers& answers) {
  bool is_any_dropped = false;
  for (auto known = owners_.begin(); known != owners_.end();) {
    const auto& handles = known->second.handles;
    const bool is_gone = std::find(handles.begin(), handles.end(), handle) != handles.end();
    known = is_gone ? drop(known) : std::next(known);
    is_any_dropped |= is_gone;
  }
  if (is_any_dropped) pump(answers);
}

void LockQueue::withdraw(std::uint64_t ticket, int error, Answers& answers) {
  const auto found = std::find_if(waiters_.begin(), waiters_.end(),
                                  [&](const Waiter& waiter) { return waiter.ticket == ticket; });
  if (found == waiters_.end()) return;  // answered meanwhile
  answers.emplace_back(std::move(found->call), error);
  waiters_.erase(found);
  pump(answers);
}

void LockQueue::poll(Answers& answers) {
  pump(answers);
  const std::size_t before = waiters_.size();
  const auto now = system_.now();
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (waiter->until && (*waiter->until <= now || !may_be_free_soon(waiter->request))) {
      answers.emplace_back(std::move(waiter->call), EAGAIN);
      waiter = waiters_.erase(waiter);
    } else {
      ++waiter;
    }
  }
  if (waiters_.size() < before) pump(answers);  // tries the requests that were behind them
}

void LockQueue::move_to(UniqueFd file, bool is_shared) {
  file_ = std::move(file);
  is_shared_ = is_shared;
  for (auto known = owners_.begin(); known != owners_.end();) {
    known = take_again(known->first, known->second) ? std::next(known) : owners_.erase(known);
  }
}

bool LockQueue::take_again(const OwnerKey& key, Owner& owner) const {
  auto fd = sys::reopen(file_.get(), key.first ? O_RDWR : O_RDONLY);
  if (!fd) return false;
  owner.fd = *std::move(fd);
  return std::all_of(owner.held.begin(), owner.held.end(), [&](const Range& range) {
    LockRequest request;
    request.is_record = key.first;
    request.type = range.type;
    request.start = range.start;
    request.length = range.length;
    return system_.set(owner.fd.get(), request) == 0;
  });
}

void LockQueue::refuse_all(int error, Answers& answers) {
  for (Waiter& waiter : waiters_) {
    answers.emplace_back(std::move(waiter.call), waiter.until ? EAGAIN : error);
  }
  waiters_.clear();
}

void LockQueue::add_blockers(const std::set<std::uint64_t>& owners,
                             std::set<std::uint64_t>& blockers) const {
  for (const Waiter& waiter : waiters_) {
    const LockRequest& request = waiter.request;
    if (!request.is_record || waiter.until || !owners.contains(request.owner)) continue;
    for (const auto& [key, owner] : owners_) {
      if (key.first && key.second != request.owner &&
          std::any_of(owner.held.begin(), owner.held.end(),
                      [&](const Range& range) { return conflict(request, true, range); })) {
        blockers.insert(key.second);
      }
    }
  }
}

void LockQueue::add_waiting(std::set<std::uint64_t>& handles, std::set<pid_t>& processes) const {
  for (const Waiter& waiter : waiters_) {
    handles.insert(waiter.request.handle);
    processes.insert(waiter.request.process);
  }
}

bool LockQueue::gives_up_exclusive(const LockRequest& unlock) const {
  const auto owner = owners_.find({unlock.is_record, unlock.owner});
  return owner != owners_.end() &&
         std::any_of(owner->second.held.begin(), owner->second.held.end(), [&](const Range& range) {
           return range.type == F_WRLCK && covers(unlock, range);
         });
}

bool LockQueue::is_held_by(pid_t process) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) {
    const auto& held = known.second.held;
    return known.second.process == process &&
           std::any_of(held.begin(), held.end(),
                       [](const Range& range) { return range.type == F_WRLCK; });
  });
}

bool LockQueue::is_wanted_by_others(pid_t process) const {
  return std::any_of(owners_.begin(), owners_.end(),
                     [&](const auto& known) {
                       return !known.second.held.empty() && known.second.process != process;
                     }) ||
         std::any_of(waiters_.begin(), waiters_.end(),
                     [&](const Waiter& waiter) { return waiter.request.process != process; });
}

// Of the requests for the whole file, checks only the first: the others wait for it.
bool LockQueue::needs_poll() const {
  bool first_seen = false;
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) REQUIRES(mutex) {
    if (waiter.until) return true;
    const bool is_behind = !waiter.request.is_record && first_seen;
    first_seen |= !waiter.request.is_record;
    if (is_behind) return false;
    if (waiter.request.is_record && may_end_unseen(waiter.request)) return true;
    return is_shared_ && !is_held_against(waiter.request);
  });
}

}  // namespace cacheshim
