// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>

#include "common/result.h"
#include "store/sys/copy_file.h"

namespace cacheshim {

class LockFiles;

// A file of class `shared` that is open for writing. Who reads it without its lock must never see half of
// what is written: the first change goes to a copy of the file in staging, which the descriptor then
// refers to, and commit() puts that in the file's place, by a rename. The next change makes the next copy.
// What is never committed is thrown away.
//
// The caller holds `mutex` for all calls.
class SharedFile {
 public:
  // `staging`: a folder on the base's file system, which must outlive the object. `path`: the file's, as it
  // was opened. `is_new`: this opening has made the file.
  SharedFile(int staging, std::string path, bool is_new)
      : staging_(staging), path_(std::move(path)), is_new_(is_new) {}
  ~SharedFile() { discard(); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  std::mutex mutex;

  const std::string& path() const { return path_; }
  bool is_staged() const { return !name_.empty(); }
  // Whether what this opening has made was never finished.
  bool is_unfinished() const { return is_new_ && was_killed_; }
  void set_killed() { was_killed_ = true; }

  // Ensures that `fd`, open for reading and writing, is the copy's: of the first `keep_bytes` of what it was.
  Status stage(int fd, off_t keep_bytes = kWholeFile);
  // Syncs the copy and renames it to `path` of `files`; does nothing where nothing is staged. Where there is
  // no such file any more, the copy is thrown away. Errors leave it staged.
  Status commit(int fd, const LockFiles& files, const std::string& path);
  void discard();

 private:
  const int staging_;
  const std::string path_;
  bool is_new_;
  bool was_killed_ = false;
  std::string name_;  // of the copy, in staging
};

}  // namespace cacheshim
