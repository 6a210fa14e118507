// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "fuse/nodes/handle.h"
#include "fuse/nodes/node_table.h"
#include "store/base/store.h"
#include "store/locks/lock_files.h"
#include "store/locks/shared_file.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Files of class `shared`. A process writes to a staged copy, with which the daemon replaces the file in the base
// during close(2) (FLUSH; store/locks/shared_file.h). So when a process locks, writes, closes and unlocks a file, the
// next process that locks the file finds the result. The kernel also closes the files of a killed process. The writes
// of a killed process may be incomplete, so the daemon discards them. Thread-safe.
class SharedFiles {
 public:
  using Change = std::function<Result<std::size_t>(int fd)>;

  // All must outlive this object.
  SharedFiles(const Store& store, const NodeTable& nodes, const LockFiles& files)
      : store_(store), nodes_(nodes), files_(files) {}

  // Returns the object through which a handle opened with `flags` writes to a file of class `shared`. Returns null if
  // the file is of another class, or is opened only for reading. `is_new`: the caller has just created the file.
  std::unique_ptr<SharedFile> make(const std::string& path, CommonKind kind, int flags,
                                   bool is_new) const;
  // Runs `change` on the staged copy of the handle's file. If there is no copy yet, first makes one, with at least the
  // first `keep_bytes` bytes of the file.
  static Result<std::size_t> change(FileHandle& handle, const Change& change,
                                    off_t keep_bytes = kWholeFile);
  // Applies `change` to a copy of the file at `path`, and replaces the file with the copy. Use this for requests that
  // have no handle open for writing. `file`: a descriptor of the file. `keep_bytes`: as for change().
  Result<struct stat> change_named(const std::string& path, int file, off_t keep_bytes,
                                   const std::function<Status(int fd)>& change) const;
  // Call note_opened() when a thread has opened the file, commit() when a thread closes a
  // descriptor of it, and released() when the handle is released.
  void note_opened(const FileHandle& handle, pid_t thread);
  Status commit(FileHandle& handle, pid_t closing) const;
  void released(FileHandle& handle);

  // The attributes of the staged copy to which the process of `thread` writes, if there is one. fstat(2) must show
  // them, but its request has no handle.
  struct OwnCopy {
    Result<struct stat> st;
    bool in_upper;
  };
  std::optional<OwnCopy> own_copy_of(NodeIndex node, pid_t thread);

 private:
  struct Opening {
    const FileHandle* handle;
    pid_t process;
  };

  std::string path_of(const FileHandle& handle) const;
  void discard(FileHandle& handle) const;

  const Store& store_;
  const NodeTable& nodes_;
  const LockFiles& files_;
  Mutex mutex_;
  std::map<NodeIndex, std::vector<Opening>> openings_ GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};  // the number of openings
};

}  // namespace cacheshim
