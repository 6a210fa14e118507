// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fuse/nodes/handle.h"
#include "fuse/services/locks/lock_table.h"
#include "store/locks/named_lock_files.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// A file of the base on which the daemon takes the locks of a job's own file.
struct NamedLock {
  std::string path;  // the path of the job's file
  UniqueFd object;   // an O_PATH descriptor of the base file
  LockFileId id;
};

// Takes the locks of a job's own file on a file of the base, from the first lock request on. This applies to small
// `*.lock` files in a cache without a profile, and to batons that a process locks with flock(2) or fcntl(2). The job's
// file keeps its own bytes, attributes and names. Only its locks are shared with other jobs and with processes outside
// the mount, because they are locks on the base file at the same path. A baton's locks are shared only with other jobs:
// they are locks on a file in leases/, which processes outside the mount do not use (NamedLockFiles).
//
// A process outside the mount may remove that base file, as Python's filelock does when it unlocks. A lock on the
// removed file would not exclude later processes:
//   1. A process outside the mount holds the lock, and a process in a view waits for it.
//   2. The process outside the mount unlinks the file and unlocks it. The daemon gets the lock on the unlinked file.
//   3. Another process creates the file again and locks the new file.
// So the daemon checks each lock that it gets. If the path in the base no longer leads to the locked file, the daemon
// unlocks that file and repeats the request on the current file, which it creates if necessary.
//
// The base file is chosen per node, not per handle. Unless the base file is removed, the node keeps it until the last
// handle that has requested a lock is released. So all processes of a job lock the same base file, even after a rename
// or unlink in the job's view.
//
// Thread-safe.
class NamedLocks {
 public:
  using Lock = std::shared_ptr<const NamedLock>;

  // Both must outlive the object.
  NamedLocks(LockTable& table, const NamedLockFiles& files) : table_(table), files_(files) {}

  // Returns the lock of the handle's file, or null if it has none.
  Lock of(const FileHandle& handle);
  // As of(), but also counts the handle as a user of the lock.
  Lock use(FileHandle& handle);
  // As use(), for a file that has no NamedLock yet. `path`: the path of the handle's file. `object`: an O_PATH
  // descriptor of the file that NamedLockFiles provides for `path`; from then on, the daemon takes the locks on this
  // file.
  Result<Lock> add(FileHandle& handle, std::string path, UniqueFd object);

  // As LockTable::lock(). The handle must stay until `reply` is answered.
  void lock(FileHandle& handle, Lock lock, const LockRequest& request,
            std::unique_ptr<LockReply> reply) {
    lock_again(handle, std::move(lock), request, std::move(reply), kMostAttempts);
  }
  // As LockTable::find().
  int find(const Lock& lock, const LockRequest& request, struct flock& found);
  // As the functions of LockTable. Call for FLUSH and RELEASE of a handle of any file.
  void closed(const FileHandle& handle, std::uint64_t fh, std::uint64_t owner);
  void released(FileHandle& handle, std::uint64_t fh);

 private:
  class CheckedReply;
  // An attempt fails only if a process removes the base file before the daemon has checked the lock.
  static constexpr int kMostAttempts = 32;
  struct Entry {
    std::vector<Lock> locks;  // the last one is current; processes may still hold the others
    unsigned handles = 0;
  };

  void lock_again(FileHandle& handle, Lock lock, const LockRequest& request,
                  std::unique_ptr<LockReply> reply, int attempts);
  void granted_on_stale_file(FileHandle& handle, const Lock& lock, const LockRequest& request,
                             std::unique_ptr<LockReply> reply, int attempts);
  bool is_current(const NamedLock& lock) const;
  Result<Lock> replace(const FileHandle& handle, const Lock& stale);
  std::vector<Lock> all_of(const FileHandle& handle);
  void unlock(const NamedLock& lock, LockRequest request);

  LockTable& table_;
  const NamedLockFiles& files_;
  std::atomic<std::size_t> count_{0};   // the number of entries; read without the mutex
  Mutex mutex_{LockRank::kNamedLocks};  // also guards changes of FileHandle::uses_named_lock
  std::unordered_map<NodeIndex, Entry> entries_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
