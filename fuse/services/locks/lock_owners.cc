// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_owners.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// If no RELEASE has arrived this long after a descriptor was closed, a duplicate of the descriptor is still open.
constexpr std::chrono::milliseconds kLeavingFor{100};

// Each owner is charged for its own descriptor and for LockOwners::file_, although all owners of a file share file_.
constexpr std::uint64_t kDescriptors = 2;

}  // namespace

// Each owner has a separate descriptor, by which the kernel identifies the owner. For a lock on the whole file, the
// descriptor is read-only unless the file system requires a writable one, because closing a writable descriptor would
// cause a close-write event for watchers of the base.
Result<LockOwners::Owner> LockOwners::make_owner(const LockRequest& request, int file) {
  auto paid = Charge::take(request.account, Limit::kHandles, kDescriptors);
  auto held = Charge::take(request.account, Limit::kLocks, 0);
  if (!paid || !held) return Errno(ENOLCK);
  auto fd = sys::reopen(file, request.is_record ? O_RDWR : O_RDONLY);
  if (!fd && request.is_record) fd = sys::reopen(file, O_RDONLY);
  if (!fd) return fd.error();
  Owner owner;
  owner.fd = *std::move(fd);
  owner.descriptor_charge = *std::move(paid);
  owner.held_charge = *std::move(held);
  return owner;
}

Result<LockOwners::Owner*> LockOwners::ensure_owner(const LockRequest& request) {
  auto known = owners_.find(key_of(request));
  if (known == owners_.end()) {
    CACHESHIM_TRY(made, make_owner(request, file_.get()));
    known = owners_.emplace(key_of(request), std::move(made)).first;
  }
  Owner& owner = known->second;
  if (std::find(owner.handles.begin(), owner.handles.end(), request.handle) ==
      owner.handles.end()) {
    owner.handles.push_back(request.handle);
  }
  owner.shown_inode = request.shown_inode;
  owner.reports_close = request.reports_close;
  owner.closed_at = {};
  return &owner;
}

// Records the locks that the kernel has granted.
void LockOwners::remember(Owner& owner, const LockRequest& request, int error) {
  const LockRange range = range_of(request);
  if (!request.is_record) {
    owner.held.clear();  // after a failed conversion, the old lock is lost (flock(2))
    if (error == 0) owner.held.set(range);
  } else if (error == 0) {
    owner.held.set(range);
  }
  (void)owner.held_charge.resize(owner.held.size());  // cannot fail, because the charge does not grow
}

int LockOwners::try_set(const LockRequest& request) {
  if (request.type == F_UNLCK && !owners_.contains(key_of(request))) return 0;
  const auto found = ensure_owner(request);
  if (!found) return found.error().code();
  Owner& owner = **found;
  // Not in ensure_owner(), because a request for F_GETLK contains no process.
  if (request.type != F_UNLCK) owner.process = request.process;
  const std::size_t most = owner.held.size() + owner.held.most_added(range_of(request));
  if (!owner.held_charge.resize(most)) return ENOLCK;
  int error = system_.set(owner.fd.get(), request);
  // NFS implements an exclusive flock as a record lock, which requires a writable descriptor
  if (error == EBADF) {
    auto writer = sys::reopen(file_.get(), O_RDWR);
    if (!writer) {
      (void)owner.held_charge.resize(owner.held.size());
      return writer.error().code();
    }
    owner.fd = *std::move(writer);
    error = system_.set(owner.fd.get(), request);
  }
  if (error == 0 && request.type != F_UNLCK && owner.held.empty()) note_descriptors(owner, request);
  remember(owner, request, error);
  return error;
}

// Unlocks before closing the descriptor. Closing it is not enough: a process that the daemon has just forked may
// briefly have a copy of the descriptor, and no event would report when that copy is closed.
LockOwners::Owners::iterator LockOwners::drop(Owners::iterator known) {
  const auto& [key, owner] = *known;
  if (!owner.held.empty()) {
    LockRequest all;  // a default request unlocks everything
    all.is_record = key.first;
    (void)system_.set(owner.fd.get(), all);
  }
  return owners_.erase(known);
}

// Call after the first lock, not before each attempt, because this function reads /proc several times.
void LockOwners::note_descriptors(Owner& owner, const LockRequest& request) const {
  owner.descriptors.clear();
  owner.any_close_ends_locks = false;
  if (!request.is_record || !request.has_silent_handles) return;
  const LockCallArguments call = system_.arguments(request.thread);
  owner.any_close_ends_locks = call.kind == LockCallKind::kOfProcess;
  if (owner.any_close_ends_locks) {
    owner.descriptors = system_.descriptors(request.process, request.shown_inode, call.descriptor);
  }
}

// Whether the process has closed one of `owner.descriptors`. Each call checks at most kMostChecks of them, and
// continues where the previous call stopped, so repeated calls find a closed descriptor.
bool LockOwners::has_closed_one(const Owner& owner) const {
  const std::size_t count = owner.descriptors.size();
  for (std::size_t checks = 0; checks < std::min(count, kMostChecks); ++checks) {
    owner.next_check = (owner.next_check + 1) % count;
    if (!system_.has_descriptor(owner.process, owner.descriptors[owner.next_check])) return true;
  }
  return false;
}

// Whether the owner has lost its record locks: its process has closed a descriptor of the file, or has exited while a
// child process still has the file open.
bool LockOwners::has_lost_locks(const Owner& owner) const {
  if (owner.any_close_ends_locks && !owner.descriptors.empty()) return has_closed_one(owner);
  return !owner.reports_close && system_.has_ended(owner.process);
}

bool LockOwners::refresh(const LockRequest& request) {
  const auto known = owners_.find(key_of(request));
  if (known == owners_.end()) return false;
  if (known->second.any_close_ends_locks && has_closed_one(known->second)) drop(known);
  return true;
}

// Stops at the first conflicting owner that still has its locks, because the request must wait for this owner in any
// case.
bool LockOwners::drop_stale(const LockRequest& request) {
  if (!request.is_record) return false;
  bool is_any_dropped = false;
  for (auto known = owners_.begin(); known != owners_.end();) {
    if (!conflicts(request, known->first, known->second)) {
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

bool LockOwners::conflicts(const LockRequest& request, const OwnerKey& key, const Owner& owner) {
  return key != key_of(request) && key.first == request.is_record &&
         owner.held.conflicts_with(range_of(request));
}

bool LockOwners::has_conflict(const LockRequest& request) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) {
    return conflicts(request, known.first, known.second);
  });
}

// Call only after drop_stale() has found that the owner still has its record locks.
bool LockOwners::may_leave_soon(const Owner& owner) const {
  if (owner.reports_close) return system_.now() - owner.closed_at < kLeavingFor;
  const bool is_known = owner.any_close_ends_locks && !owner.descriptors.empty();
  return !is_known && system_.is_releasing();
}

bool LockOwners::may_be_free_soon(const LockRequest& request) const {
  const auto stays = [&](const auto& known) {
    return conflicts(request, known.first, known.second) && !may_leave_soon(known.second);
  };
  return has_conflict(request) && std::none_of(owners_.begin(), owners_.end(), stays);
}

// A process outside the mount may release its lock, and a process of the mount may lose a record lock by a close that
// the kernel does not report. No event reports either.
bool LockOwners::may_end_unreported(const LockRequest& request) const {
  const auto ends_unseen = [&](const auto& known) {
    const auto& [key, owner] = known;
    return (!owner.reports_close || owner.any_close_ends_locks) && conflicts(request, key, owner);
  };
  if (request.is_record && std::any_of(owners_.begin(), owners_.end(), ends_unseen)) return true;
  return is_shared_ && !has_conflict(request);
}

int LockOwners::find(const LockRequest& request, struct flock& lock) {
  const auto owner = ensure_owner(request);
  if (!owner) return owner.error().code();
  lock = to_flock(request);
  const int error = system_.find((*owner)->fd.get(), lock);
  if (error != 0 || lock.l_type == F_UNLCK || lock.l_pid > 0) return error;
  // The kernel reports no process for an OFD lock. If the lock belongs to one of owners_, report the owner's process.
  LockRequest there = request;
  there.start = lock.l_start;
  there.length = lock.l_len;
  there.type = F_WRLCK;
  for (const auto& [key, other] : owners_) {
    if (conflicts(there, key, other)) lock.l_pid = other.process;
  }
  return 0;
}

bool LockOwners::closed(std::uint64_t handle, std::uint64_t owner) {
  const auto held = owners_.find({false, handle});
  if (held != owners_.end()) held->second.closed_at = system_.now();
  const auto records = owners_.find({true, owner});
  if (records == owners_.end()) return false;
  drop(records);
  return true;
}

bool LockOwners::released(std::uint64_t handle) {
  bool is_any_dropped = false;
  for (auto known = owners_.begin(); known != owners_.end();) {
    const auto& handles = known->second.handles;
    const bool is_gone = std::find(handles.begin(), handles.end(), handle) != handles.end();
    known = is_gone ? drop(known) : std::next(known);
    is_any_dropped |= is_gone;
  }
  return is_any_dropped;
}

void LockOwners::move_to(UniqueFd file, bool is_shared) {
  file_ = std::move(file);
  is_shared_ = is_shared;
  for (auto known = owners_.begin(); known != owners_.end();) {
    known = take_again(known->first, known->second) ? std::next(known) : owners_.erase(known);
  }
}

bool LockOwners::take_again(const OwnerKey& key, Owner& owner) const {
  auto fd = sys::reopen(file_.get(), key.first ? O_RDWR : O_RDONLY);
  if (!fd) return false;
  owner.fd = *std::move(fd);
  bool are_taken = true;
  owner.held.for_each([&](short type, Interval bytes) {
    LockRequest request;
    request.is_record = key.first;
    request.type = type;
    request.start = bytes.start;
    request.length = bytes.end == Interval::kEndOfFile ? 0 : bytes.end - bytes.start;
    are_taken = are_taken && system_.set(owner.fd.get(), request) == 0;
  });
  return are_taken;
}

bool LockOwners::has_lock(const LockRequest& request) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) {
    const auto& [key, owner] = known;
    const bool is_own = key.second == request.owner || owner.process == request.process;
    return key.first == request.is_record && is_own && !owner.held.empty();
  });
}

bool LockOwners::has_lock_of_others(pid_t process) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) {
    return !known.second.held.empty() && known.second.process != process;
  });
}

bool LockOwners::is_held_by(pid_t process) const {
  return std::any_of(owners_.begin(), owners_.end(), [&](const auto& known) {
    return known.second.process == process && known.second.held.has_exclusive();
  });
}

bool LockOwners::releases_exclusive(const LockRequest& unlock) const {
  const auto owner = owners_.find(key_of(unlock));
  return owner != owners_.end() && owner->second.held.has_exclusive_within(range_of(unlock).bytes);
}

void LockOwners::add_blockers(const LockRequest& request,
                              std::set<std::uint64_t>& blockers) const {
  for (const auto& [key, owner] : owners_) {
    if (conflicts(request, key, owner)) blockers.insert(key.second);
  }
}

}  // namespace cacheshim
