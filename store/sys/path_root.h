// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <type_traits>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {

// Makes system calls on paths below a directory without following symlinks. If a component other than the last is a
// symlink, the calls fail with ELOOP. The last component may be a symlink.
//
// Only openat2(2) can forbid symlinks in a path, so any other operation takes three calls: open the parent, use the
// name, close the parent. To avoid this, the constructor makes a private clone of the directory's mount with the option
// nosymfollow. No lookup in the clone follows a symlink, so one call is enough. In the clone, a stat takes 1.0 µs
// instead of 2.4 µs, and a stat of a missing name 0.6 µs instead of 1.1 µs. The clone requires privilege over the mount
// namespace, and Linux 5.14. PathRoot makes three calls for a path of PATH_MAX bytes or more, and, without the clone,
// for every path of more than one component.
//
// The clone is a separate mount: link(2) and rename(2) between the clone and the original mount fail with EXDEV.
// rename() and link() work because all calls through one PathRoot use the same mount.
class PathRoot {
 public:
  // `directory` must stay open as long as the object exists.
  explicit PathRoot(int directory);
  // Thread-safe, like all methods. `path` is as in paths.h, of any length.
  Result<struct stat> stat(const std::string& path) const;
  Status unlink(const std::string& path, int flags = 0) const;  // 0 or AT_REMOVEDIR
  Status rename(const std::string& from, const std::string& to, unsigned flags = 0) const;
  Status link(const std::string& path, const std::string& new_path) const;

  // Calls `call(dir, name)` and returns its result. Either `dir` is the root and `name` is `path`, or `dir` is the
  // parent directory of `path` and `name` is its last component. In both cases, parent_path(name), relative to `dir`,
  // is the parent directory of `path` ("" is `dir` itself). `dir` may be an O_PATH descriptor. Requires: `call` does
  // not follow a symlink in the last component of `name`.
  template <class Call>
  std::invoke_result_t<Call, int, const std::string&> at(const std::string& path,
                                                         Call&& call) const {
    if (is_one_call(path)) return call(root(), path);
    CACHESHIM_TRY(parent, sys::open_beneath(root(), parent_path(path), O_PATH | O_DIRECTORY));
    return call(parent.get(), std::string(base_name(path)));
  }

 private:
  int root() const { return clone_ ? clone_.get() : directory_; }
  bool is_one_call(const std::string& path) const;

  int directory_;
  UniqueFd clone_;  // empty without the privilege
};

}  // namespace cacheshim
