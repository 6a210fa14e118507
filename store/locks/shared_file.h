// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "common/result.h"
#include "store/sys/copy_file.h"
#include "store/threads/mutex.h"

namespace cacheshim {

class LockFiles;

// A file of class `shared` that is open for writing. A reader that does not hold the file's lock
// must never see a half-written file. So the first change makes a copy of the file in staging, and
// the descriptor then refers to this copy. commit() replaces the file with the copy by a rename.
// The next change after that makes a new copy. A copy that is never committed is discarded.
class SharedFile {
 public:
  // `staging`: a directory on the base's file system; it must stay open as long as the object
  // exists. `path`: the file's path at the open. `is_new`: this open has created the file.
  SharedFile(int staging, std::string path, bool is_new)
      : staging_(staging), path_(std::move(path)), is_new_(is_new) {}
  ~SharedFile() { discard(); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  Mutex mutex{LockRank::kSharedFile};

  const std::string& path() const { return path_; }
  bool is_staged() const REQUIRES(mutex) { return !name_.empty(); }
  // Whether this open has created the file, and its writer was killed before the first commit().
  bool is_unfinished() const REQUIRES(mutex) { return is_new_ && was_killed_; }
  void set_killed() REQUIRES(mutex) { was_killed_ = true; }

  // Ensures that `fd`, open for reading and writing, refers to a staged copy of the file's first
  // `keep_bytes`.
  Status stage(int fd, off_t keep_bytes = kWholeFile) REQUIRES(mutex);
  // Syncs the copy and renames it to `path` in the base; does nothing if nothing is staged. If the
  // file does not exist any more, or is hidden, discards the copy. If the sync or the rename fails,
  // the copy stays staged.
  Status commit(int fd, const LockFiles& files, const std::string& path) REQUIRES(mutex);
  void discard() REQUIRES(mutex);

 private:
  const int staging_;
  const std::string path_;
  bool is_new_ GUARDED_BY(mutex);
  bool was_killed_ GUARDED_BY(mutex) = false;
  std::string name_ GUARDED_BY(mutex);  // the name of the copy in staging; "" if nothing is staged
};

}  // namespace cacheshim
