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

// A descriptor that was closed longer ago than this is still open elsewhere: otherwise its RELEASE
// would have arrived.
constexpr std::chrono::milliseconds kLeavingFor{100};

bool is_busy(int error) { return error == EWOULDBLOCK || error == EACCES; }

int flock_operation(short type) {
  if (type == F_UNLCK) return LOCK_UN;
  return (type == F_WRLCK ? LOCK_EX : LOCK_SH) | LOCK_NB;
}

struct flock range_of(const LockWish& wish) {
  struct flock range {};
  range.l_type = wish.type;
  range.l_whence = SEEK_SET;
  range.l_start = wish.start;
  range.l_len = wish.length;
  return range;
}

off_t end_of(off_t start, off_t length) {
  return length == 0 ? std::numeric_limits<off_t>::max() : start + length;
}

int set_lock(int fd, const LockWish& wish) {
  if (wish.is_record) {
    struct flock range = range_of(wish);
    return ::fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : errno;
  }
  return ::flock(fd, flock_operation(wish.type)) == 0 ? 0 : errno;
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
          [] { return true; }};
}

bool LockQueue::conflict(const LockWish& wish, bool is_record, const Range& range) {
  if (wish.is_record != is_record) return false;
  if (wish.type != F_WRLCK && range.type != F_WRLCK) return false;
  if (!is_record) return true;
  return wish.start < end_of(range.start, range.length) &&
         range.start < end_of(wish.start, wish.length);
}

// Each owner has a descriptor of its own, by which the kernel identifies it. Read-only if that
// works, so that closing it causes no event for watchers.
Result<LockQueue::Owner*> LockQueue::ensure_owner(const LockWish& wish) {
  Owner& owner = owners_[{wish.is_record, wish.owner}];
  if (!owner.fd) {
    auto fd = sys::reopen(file_.get(), wish.is_record ? O_RDWR : O_RDONLY);
    if (!fd && wish.is_record) fd = sys::reopen(file_.get(), O_RDONLY);
    if (!fd) {
      owners_.erase({wish.is_record, wish.owner});
      return fd.error();
    }
    owner.fd = *std::move(fd);
  }
  if (std::find(owner.handles.begin(), owner.handles.end(), wish.handle) == owner.handles.end()) {
    owner.handles.push_back(wish.handle);
  }
  if (wish.type != F_UNLCK) owner.process = wish.process;
  owner.shown_inode = wish.shown_inode;
  owner.tells_close = wish.tells_close;
  owner.closed_at = {};
  return &owner;
}

bool LockQueue::covers(const LockWish& wish, const Range& range) {
  return wish.start <= range.start &&
         end_of(range.start, range.length) <= end_of(wish.start, wish.length);
}

// Keeps the bytes before and after those of `wish`.
void LockQueue::subtract(std::vector<Range>& ranges, const LockWish& wish) {
  const off_t end = end_of(wish.start, wish.length);
  std::vector<Range> left;
  for (const Range& range : ranges) {
    const off_t range_end = end_of(range.start, range.length);
    if (range.start < wish.start) {
      const off_t until = std::min(range_end, wish.start);
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
void LockQueue::remember(Owner& owner, const LockWish& wish, int error) {
  const Range range{wish.type, wish.start, wish.length};
  if (!wish.is_record) {
    owner.held.clear();  // as flock(2) says, a failed conversion loses the old lock
    if (error == 0 && wish.type != F_UNLCK) owner.held.push_back(range);
    return;
  }
  if (error != 0) return;
  subtract(owner.held, wish);
  if (wish.type != F_UNLCK) owner.held.push_back(range);
}

int LockQueue::try_set(const LockWish& wish) {
  if (wish.type == F_UNLCK && !owners_.contains({wish.is_record, wish.owner})) return 0;
  const auto found = ensure_owner(wish);
  if (!found) return found.error().code();
  Owner& owner = **found;
  int error = system_.set(owner.fd.get(), wish);
  // NFS implements an exclusive flock as a record lock, which requires a writable descriptor
  if (error == EBADF) {
    auto writer = sys::reopen(file_.get(), O_RDWR);
    if (!writer) return writer.error().code();
    owner.fd = *std::move(writer);
    error = system_.set(owner.fd.get(), wish);
  }
  if (error == 0 && wish.type != F_UNLCK && owner.held.empty()) note_descriptors(owner, wish);
  remember(owner, wish, error);
  return error;
}

// Closing the descriptor is not enough: a process that the daemon has just forked may briefly have
// a copy, and with it the locks, and no event would report when it is closed.
LockQueue::Owners::iterator LockQueue::drop(Owners::iterator known) {
  const auto& [key, owner] = *known;
  if (!owner.held.empty()) {
    LockWish all;  // bytes
    all.is_record = key.first;
    (void)system_.set(owner.fd.get(), all);
  }
  return owners_.erase(known);
}

// Called after the first lock, and not before each attempt: it reads /proc several times.
void LockQueue::note_descriptors(Owner& owner, const LockWish& wish) const {
  owner.descriptors.clear();
  owner.ends_with_one = false;
  if (!wish.is_record || !wish.others_close_unseen) return;
  const LockCallArguments call = system_.arguments(wish.thread);
  owner.ends_with_one = call.kind == LockCallKind::kOfProcess;
  if (owner.ends_with_one) {
    owner.descriptors = system_.descriptors(wish.process, wish.shown_inode, call.descriptor);
  }
}

// The same, after removing conflicting locks that have ended unnoticed.
int LockQueue::try_set_again(const LockWish& wish) {
  const int error = try_set(wish);
  return is_busy(error) && drop_stale(wish) ? try_set(wish) : error;
}

// If there are many descriptors, each call checks other ones, so that repeated requests find a
// close.
bool LockQueue::has_closed_one(const Owner& owner) const {
  const std::size_t count = owner.descriptors.size();
  for (std::size_t looks = 0; looks < std::min(count, kMostLooks); ++looks) {
    owner.next_look = (owner.next_look + 1) % count;
    if (!system_.has_descriptor(owner.process, owner.descriptors[owner.next_look])) return true;
  }
  return false;
}

// Record locks of a process that has closed a descriptor, or that has exited while a child keeps
// the file open.
bool LockQueue::has_lost_locks(const Owner& owner) const {
  if (owner.ends_with_one && !owner.descriptors.empty()) return has_closed_one(owner);
  return !owner.tells_close && system_.has_ended(owner.process);
}

// Stops at the first conflicting owner that still has its locks: while it remains, the others do
// not matter.
bool LockQueue::drop_stale(const LockWish& wish) {
  if (!wish.is_record) return false;
  bool is_any_dropped = false;
  for (auto known = owners_.begin(); known != owners_.end();) {
    if (!is_in_the_way(wish, known->first, known->second)) {
      ++known;
    } else if (has_lost_locks(known->second)) {
      known = drop(known);
      is_any_dropped = true;
    } else {
      return false;
    }
  }
  return is_any_dropped;
}

bool LockQueue::must_queue(const LockWish& wish) const {
  if (!wish.waits || wish.type == F_UNLCK) return false;
  for (const auto& [key, owner] : owners_) {
    const bool is_own = key.second == wish.owner || owner.process == wish.process;
    if (key.first == wish.is_record && is_own && !owner.held.empty()) return false;
  }
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
    const LockWish& other = waiter.wish;
    return conflict(wish, other.is_record, {other.type, other.start, other.length});
  });
}

bool LockQueue::is_in_the_way(const LockWish& wish, const OwnerKey& key, const Owner& owner) const {
  return key != OwnerKey{wish.is_record, wish.owner} &&
         std::any_of(owner.held.begin(), owner.held.end(),
                     [&](const Range& range) { return conflict(wish, key.first, range); });
}

bool LockQueue::is_held_against(const LockWish& wish) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) REQUIRES(mutex) {
    return is_in_the_way(wish, known.first, known.second);
  });
}

// Call after drop_stale(), which has found that a process still has its record locks.
bool LockQueue::may_leave_soon(const Owner& owner) const {
  if (owner.tells_close) return Clock::now() - owner.closed_at < kLeavingFor;
  const bool is_known = owner.ends_with_one && !owner.descriptors.empty();
  return !is_known && system_.is_releasing();
}

// Whether all conflicting owners may be about to release their locks.
bool LockQueue::may_be_free_soon(const LockWish& wish) const {
  const auto stays = [&](const auto& known) REQUIRES(mutex) {
    return is_in_the_way(wish, known.first, known.second) && !may_leave_soon(known.second);
  };
  return is_held_against(wish) && std::none_of(owners_.begin(), owners_.end(), stays);
}

// Whether conflicting record locks may be released without an event.
bool LockQueue::may_end_unseen(const LockWish& wish) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) REQUIRES(mutex) {
    const auto& [key, owner] = known;
    return (!owner.tells_close || owner.ends_with_one) && is_in_the_way(wish, key, owner);
  });
}

int LockQueue::ask(const LockWish& wish, Answers& answers) {
  if (must_queue(wish)) return EINPROGRESS;
  const auto known = owners_.find({wish.is_record, wish.owner});
  const bool had_lock = known != owners_.end();
  if (had_lock && known->second.ends_with_one && has_closed_one(known->second)) {
    drop(known);
  }
  const int error = try_set_again(wish);
  // Unlocked, downgraded, or lost by a conversion that failed.
  if (had_lock) pump(answers);
  if (!is_busy(error)) return error;
  if (wish.waits || (waiters_.empty() && may_be_free_soon(wish))) return EINPROGRESS;
  return EAGAIN;
}

void LockQueue::add_waiter(const LockWish& wish, std::unique_ptr<LockCall> call,
                           std::uint64_t ticket) {
  std::optional<Clock::time_point> until;
  if (!wish.waits) until = Clock::now() + kGrace;
  waiters_.push_back({wish, std::move(call), ticket, until});
}

// Grants waiting requests in order: the first one, and every record lock request that conflicts
// with no earlier request.
void LockQueue::pump(Answers& answers) {
  std::vector<LockWish> refused;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const LockWish& wish = waiter->wish;
    const bool is_behind = std::any_of(refused.begin(), refused.end(), [&](const LockWish& first) {
      return first.is_record == wish.is_record &&
             (!wish.is_record || conflict(wish, true, {first.type, first.start, first.length}));
    });
    const int error = is_behind ? EAGAIN : try_set_again(wish);
    if (is_busy(error)) {
      if (!is_behind) refused.push_back(wish);
      ++waiter;
      continue;
    }
    answers.emplace_back(std::move(waiter->call), error);
    waiter = waiters_.erase(waiter);
  }
}

int LockQueue::find(const LockWish& wish, struct flock& lock) {
  const auto owner = ensure_owner(wish);
  if (!owner) return owner.error().code();
  (void)drop_stale(wish);
  lock = range_of(wish);
  const int error = system_.find((*owner)->fd.get(), lock);
  if (error != 0 || lock.l_type == F_UNLCK || lock.l_pid > 0) return error;
  // A lock of ours, which the kernel associates with a descriptor and not with a process.
  LockWish there = wish;
  there.start = lock.l_start;
  there.length = lock.l_len;
  there.type = F_WRLCK;
  for (const auto& [key, other] : owners_) {
    for (const Range& range : other.held) {
      if (key.second != wish.owner && conflict(there, key.first, range)) lock.l_pid = other.process;
    }
  }
  return 0;
}

void LockQueue::closed(std::uint64_t handle, std::uint64_t owner, Answers& answers) {
  const auto held = owners_.find({false, handle});
  if (held != owners_.end()) held->second.closed_at = Clock::now();
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
  const auto now = Clock::now();
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (waiter->until && (*waiter->until <= now || !may_be_free_soon(waiter->wish))) {
      answers.emplace_back(std::move(waiter->call), EAGAIN);
      waiter = waiters_.erase(waiter);
    } else {
      ++waiter;
    }
  }
  if (waiters_.size() < before) pump(answers);  // the requests that were behind them
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
    LockWish wish;
    wish.is_record = key.first;
    wish.type = range.type;
    wish.start = range.start;
    wish.length = range.length;
    return system_.set(owner.fd.get(), wish) == 0;
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
    const LockWish& wish = waiter.wish;
    if (!wish.is_record || waiter.until || !owners.contains(wish.owner)) continue;
    for (const auto& [key, owner] : owners_) {
      if (key.first && key.second != wish.owner &&
          std::any_of(owner.held.begin(), owner.held.end(),
                      [&](const Range& range) { return conflict(wish, true, range); })) {
        blockers.insert(key.second);
      }
    }
  }
}

void LockQueue::add_waiting(std::set<std::uint64_t>& handles, std::set<pid_t>& processes) const {
  for (const Waiter& waiter : waiters_) {
    handles.insert(waiter.wish.handle);
    processes.insert(waiter.wish.process);
  }
}

bool LockQueue::gives_up_exclusive(const LockWish& unlock) const {
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
                     [&](const Waiter& waiter) { return waiter.wish.process != process; });
}

// Of requests for the whole file only the first counts: the others wait for it.
bool LockQueue::needs_poll() const {
  bool first_seen = false;
  return std::any_of(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) REQUIRES(mutex) {
    if (waiter.until) return true;
    const bool is_behind = !waiter.wish.is_record && first_seen;
    first_seen |= !waiter.wish.is_record;
    if (is_behind) return false;
    if (waiter.wish.is_record && may_end_unseen(waiter.wish)) return true;
    return is_shared_ && !is_held_against(waiter.wish);
  });
}

}  // namespace cacheshim
