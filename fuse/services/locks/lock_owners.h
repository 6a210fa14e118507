// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "fuse/limits/user_limits.h"
#include "fuse/services/locks/lock_range.h"
#include "fuse/services/locks/lock_request.h"
#include "fuse/services/locks/lock_system.h"

namespace cacheshim {

// The locks that this mount's processes have on one file.
//
// For each owner, the daemon takes the locks on a separate descriptor of `file`, so the kernel of this machine grants
// them. The locks therefore also exclude processes outside the mount, the kernel manages the ranges, and closing the
// descriptor releases the owner's locks.
//
// Processes poll for locks, so the daemon must refuse a request quickly even if the holder has many descriptors. Each
// check of a holder therefore examines at most kMostChecks descriptors in /proc.
//
// Not thread-safe.
class LockOwners {
 public:
  static constexpr std::size_t kMostChecks = 8;

  // `file`: any descriptor of the file. `is_shared`: whether processes other than this daemon may lock the file.
  // `system` must outlive the object.
  LockOwners(UniqueFd file, bool is_shared, const LockSystem& system)
      : file_(std::move(file)), is_shared_(is_shared), system_(system) {}

  // Sets or releases a lock without waiting. Returns 0 or an errno value, which is EWOULDBLOCK or EACCES if another
  // owner has a conflicting lock, and ENOLCK if the user has reached a limit.
  int try_set(const LockRequest& request);
  // Returns true if the request's owner is known. First drops the owner's record locks if its process has closed a
  // descriptor of the file, because the kernel does not report every close.
  bool refresh(const LockRequest& request);
  // Drops conflicting record locks whose owners have lost them. Returns true if it dropped any.
  bool drop_stale(const LockRequest& request);
  // Serves F_GETLK: sets `lock` to a conflicting lock; `lock.l_type` is F_UNLCK if there is none. Returns 0 or an errno
  // value.
  int find(const LockRequest& request, struct flock& lock);
  // Call when `owner` has closed a descriptor of the handle, and so loses its record locks. Returns true if the owner
  // was known.
  bool closed(std::uint64_t handle, std::uint64_t owner);
  // Call when the handle is released. Drops the owners that have made requests through it, with all their locks.
  // Returns true if there were any such owners.
  bool released(std::uint64_t handle);
  // Takes all locks again on `file`, and uses `file` from then on. If the file system does not grant the locks of an
  // owner, the owner loses them. Requires: no process has locked `file` yet.
  void move_to(UniqueFd file, bool is_shared);

  bool is_empty() const { return owners_.empty(); }
  // Whether the request's owner, or another owner of the same process, has a lock of the request's kind (a lock on the
  // whole file, or a record lock).
  bool has_lock(const LockRequest& request) const;
  // Whether a process other than `process` has a lock.
  bool has_lock_of_others(pid_t process) const;
  // Whether `process` has an exclusive lock.
  bool is_held_by(pid_t process) const;
  // Whether `unlock` completely releases an exclusive lock of its owner.
  bool releases_exclusive(const LockRequest& unlock) const;
  // Adds the owners whose record locks conflict with the request.
  void add_blockers(const LockRequest& request, std::set<std::uint64_t>& blockers) const;
  // Whether the request conflicts with locks of known owners, and all these owners may be about to release them.
  bool may_be_free_soon(const LockRequest& request) const;
  // Whether the locks that conflict with the request may be released without an event.
  bool may_end_unreported(const LockRequest& request) const;

 private:
  struct Owner {
    UniqueFd fd;
    pid_t process = 0;
    std::uint64_t shown_inode = 0;
    std::vector<std::uint64_t> handles;
    bool reports_close = false;
    LockSystem::Clock::time_point closed_at{};
    LockRanges held;
    Charge held_charge;
    Charge descriptor_charge;
    // POSIX: a process that closes any descriptor of a file loses its record locks on the file. The kernel reports a
    // close by FLUSH, but not for a handle that was opened before the file was locked. any_close_ends_locks is true if
    // such a handle existed when the process took its first lock, and if the lock is known to belong to the process and
    // not to an open file description. `descriptors` then contains the descriptors of the file that the process had at
    // that time. Once the process has closed one of them, it has lost the locks.
    std::vector<OpenDescriptor> descriptors;
    bool any_close_ends_locks = false;
    mutable std::size_t next_check = 0;  // an index in `descriptors`
  };
  using OwnerKey = std::pair<bool, std::uint64_t>;  // is_record and owner of the LockRequest
  using Owners = std::map<OwnerKey, Owner>;

  static OwnerKey key_of(const LockRequest& request) { return {request.is_record, request.owner}; }
  static bool conflicts(const LockRequest& request, const OwnerKey& key, const Owner& owner);
  static Result<Owner> make_owner(const LockRequest& request, int file);
  static void remember(Owner& owner, const LockRequest& request, int error);
  Result<Owner*> ensure_owner(const LockRequest& request);
  Owners::iterator drop(Owners::iterator known);
  void note_descriptors(Owner& owner, const LockRequest& request) const;
  bool has_closed_one(const Owner& owner) const;
  bool has_lost_locks(const Owner& owner) const;
  bool may_leave_soon(const Owner& owner) const;
  bool has_conflict(const LockRequest& request) const;
  bool take_again(const OwnerKey& key, Owner& owner) const;

  UniqueFd file_;
  bool is_shared_;
  const LockSystem& system_;
  Owners owners_;
};

}  // namespace cacheshim
