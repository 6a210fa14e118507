// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "common/result.h"
#include "store/sys/copy_file.h"
#include "store/sys/mutex.h"

namespace cacheshim {

class LockFiles;

// A file of class `shared` that is open for writing. Who reads it without its lock must never see half of
// what is written: the first change goes to a copy of the file in staging, which the descriptor then
// refers to, and commit() puts that in the file's place, by a rename. The next change makes the next copy.
// What is never committed is thrown away.
class SharedFile {
 public:
  // `staging`: a folder on the base's file system, which must outlive the object. `path`: the file's, as it
  // was opened. `is_new`: this opening has made the file.
  SharedFile(int staging, std::string path, bool is_new)
      : staging_(staging), path_(std::move(path)), is_new_(is_new) {}
  ~SharedFile() { discard(); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  Mutex mutex{LockRank::kSharedFile};

  const std::string& path() const { return path_; }
  bool is_staged() const REQUIRES(mutex) { return !name_.empty(); }
  // Whether what this opening has made was never finished.
  bool is_unfinished() const REQUIRES(mutex) { return is_new_ && was_killed_; }
  void set_killed() REQUIRES(mutex) { was_killed_ = true; }

  // Ensures that `fd`, open for reading and writing, is the copy's: of the first `keep_bytes` of what it was.
  Status stage(int fd, off_t keep_bytes = kWholeFile) REQUIRES(mutex);
  // Syncs the copy and renames it to `path` of `files`; does nothing where nothing is staged. Where there is
  // no such file any more, the copy is thrown away. Errors leave it staged.
  Status commit(int fd, const LockFiles& files, const std::string& path) REQUIRES(mutex);
  void discard() REQUIRES(mutex);

 private:
  const int staging_;
  const std::string path_;
  bool is_new_ GUARDED_BY(mutex);
  bool was_killed_ GUARDED_BY(mutex) = false;
  std::string name_ GUARDED_BY(mutex);  // of the copy, in staging
};

}  // namespace cacheshim
