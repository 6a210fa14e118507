// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/unique_fd.h"

namespace cacheshim::parity {

// The record of the results of the calls on one side.
class Record {
 public:
  const std::vector<std::string>& lines() const { return lines_; }

  // Records the result of a system call: `result`, or the errno's name if `result` is -1. Call did()
  // in the same expression as the system call. Returns `result` and keeps errno.
  template <class T>
  T did(const std::string& what, T result) {
    static_assert(std::is_signed_v<T>);
    record_result(what, static_cast<long long>(result), false);
    return result;
  }
  // Like did(), for a call that returns a descriptor. Does not record the descriptor's number.
  UniqueFd opened(const std::string& what, int fd) {
    record_result(what, fd, true);
    return UniqueFd(fd);
  }
  void note(std::string line) { lines_.push_back(std::move(line)); }

 private:
  void record_result(const std::string& what, long long result, bool is_fd);

  std::vector<std::string> lines_;
};

// One of the two directories that must behave in the same way, and its record. A case passes the
// results of its calls to did(), once for each side. Afterwards the two records are compared line
// by line.
class Side : public Record {
 public:
  // `path` is the case's directory, which exists.
  explicit Side(std::string path);

  int dir() const { return dir_.get(); }
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Each of these functions makes a frequent call and records its result. Names are relative to the case's directory.
  UniqueFd open(const std::string& name, int flags, mode_t mode = 0644);
  void write(int fd, std::string_view data);
  void pwrite(int fd, std::string_view data, off_t offset);
  void contents(int fd);                   // reads all bytes from offset 0 with pread
  void contents(const std::string& name);  // the same, for a file that it opens by name
  void stat(const std::string& name);      // lstat: does not follow a symlink
  void fstat(int fd, std::string_view what);
  void list(const std::string& name);  // the names in one directory
  void tree();                         // all names below, with stat fields and bytes
  void xattrs(const std::string& name);

 private:
  void tree_below(int parent, const std::string& name, const std::string& shown);

  std::string path_;
  UniqueFd dir_;
};

// Returns the names of the flags, for example "O_RDWR|O_CREAT".
std::string flag_names(int flags);
// Returns `size` bytes that identify their origin: `seed` and a running number, repeated.
std::string pattern(std::string_view seed, std::size_t size);
// Returns a short fingerprint of bytes: their number and a hash.
std::string fingerprint(std::string_view bytes);

}  // namespace cacheshim::parity
