// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fuse/vfs/change_guard.h"
#include "fuse/vfs/objects.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// Serves flock(2) and fcntl(2) locks. The kernel passes all of them to the daemon (FUSE_CAP_FLOCK_LOCKS applies to the
// whole mount), and LockTable decides when to grant them.
//
// When a process closes a descriptor, it loses its record locks on the file. The kernel reports the close by FLUSH,
// which costs a round trip: an open, read and close takes 9 µs without FLUSH and 13 µs with it. So when the daemon
// opens a handle, it requests FLUSH only if a lock is likely (needs_flush()); the other handles are silent. If a
// process locks a file that has silent handles, LockOwners checks the lock owner's descriptors in /proc. Thread-safe;
// call with no lock held, unless a method says otherwise.
class LockRequests {
 public:
  // Both must outlive this object.
  LockRequests(Mount& mount, ChangeGuard& change_guard)
      : mount_(mount), change_guard_(change_guard) {}

  void flock(const Request& request, std::uint64_t fh, int operation, StatusCompletion completion);
  void setlk(const Request& request, const LockTarget& target, const struct flock& lock, bool waits,
             StatusCompletion completion);
  Result<struct flock> getlk(const Request& request, const LockTarget& target,
                             const struct flock& lock);
  // Call when a process has closed a descriptor, perhaps not the last one of the handle. Replaces a file of class
  // `shared` with its written copy, and releases the process's record locks.
  Status flush(const Request& request, const LockTarget& target);

  void release_locks(FileHandle& handle, std::uint64_t fh);
  // Whether the kernel must report each close of a new handle by FLUSH. `is_new_copy`: the open has copied up a file of
  // the base. This file belongs to a finished entry, so a lock is not likely.
  bool needs_flush(NodeIndex node, int flags, bool is_new_copy) const;
  // Makes the lock table identify the node's file by its inode from now on. Moves the node's locks to the file that
  // `open` opens; if `open` fails, the locks stay where they are.
  void lock_by_inode(NodeIndex node, const LockTable::Opener& open);
  // Call after a rename of the node's file to `path`. `new_lock`: a descriptor of the lock file, if the rename has made
  // the file a lock file of the base. If the rename has given a lock file the name of another class, makes it the job's
  // own file.
  Status settle_lock_name(NodeIndex node, Job& job, const std::string& path, UniqueFd new_lock)
      REQUIRES_SHARED(job.overlay.mutex());

 private:
  // What a request does: takes, releases or queries the lock.
  enum class LockUse { kLock, kUnlock, kFind };

  LockFileId lock_file_id(const FileHandle& handle) const;
  LockTable::Opener opener_of(const FileHandle& handle) const;
  LockRequest lock_request(const Request& request, const FileHandle& handle,
                           std::uint64_t fh) const;
  LockRequest record_request(const Request& request, const FileHandle& handle,
                             const LockTarget& target, const struct flock& lock) const;
  void set_lock(const Request& request, FileHandle& handle, const LockRequest& wanted,
                StatusCompletion completion);
  bool may_share_lock(const Request& request, const FileHandle& handle, LockUse use);
  NamedLocks::Lock named_lock_of(const Request& request, FileHandle& handle, LockUse use);
  Result<std::string> path_of(const FileHandle& handle) const;
  void note_locked(const FileHandle& handle);
  void before_grant(const FileHandle& handle, std::function<void()> answer);
  std::vector<std::string> built_under(const FileHandle& handle, const LockRequest& wanted);
  void forget_built(const FileHandle& handle, bool is_record, std::uint64_t owner);

  Mount& mount_;
  ChangeGuard& change_guard_;
};

}  // namespace cacheshim
