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

// A folder below which objects are named by path and no symlink is followed: ELOOP for one on the
// way, the symlink itself where it is the last component.
//
// openat2(2) alone knows such a rule, so that any other call takes three: the parent is opened, the
// name in it used, the parent closed. A private copy of the folder's mount that is set nosymfollow
// makes it the rule for every path below it, and one call does (to look 1.0 against 2.4 µs, a miss 0.6
// against 1.1). It takes privilege over the mount namespace (Linux 5.12); without it, and for paths of
// PATH_MAX and more, it is three calls.
//
// The copy is a mount of its own: link(2) and rename(2) give EXDEV between it and the folder's. All
// names that one PathRoot gives are on one mount.
class PathRoot {
 public:
  // `folder` stays open and outlives the object.
  explicit PathRoot(int folder);
  // Thread-safe, as all. `path` is as in paths.h, of any length.
  Result<struct stat> stat(const std::string& path) const;
  Status unlink(const std::string& path, int flags = 0) const;  // AT_REMOVEDIR
  Status rename(const std::string& from, const std::string& to, unsigned flags = 0) const;
  Status link(const std::string& path, const std::string& new_path) const;

  // Returns `call(dir, name)`, for a call that takes an open folder and a name and follows no symlink
  // that is the last component; `dir` may be an O_PATH descriptor. `name` is `path` or the end of it,
  // so that its parent_path() is that of the folder, from `dir` too; "" is the folder itself.
  template <class Call>
  std::invoke_result_t<Call, int, const std::string&> at(const std::string& path,
                                                         Call&& call) const {
    if (is_one_call(path)) return call(root(), path);
    CACHESHIM_TRY(parent, sys::open_beneath(root(), parent_path(path), O_PATH | O_DIRECTORY));
    return call(parent.get(), std::string(base_name(path)));
  }

 private:
  int root() const { return clone_ ? clone_.get() : folder_; }
  bool is_one_call(const std::string& path) const;

  int folder_;
  UniqueFd clone_;  // empty without that privilege
};

}  // namespace cacheshim
