// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "store/sys/sys.h"

// Renames for file systems that lack the flags of renameat2(2). With a flag, renameat2 gives EINVAL on NFS, on
// GlusterFS, and on FUSE file systems without FUSE_RENAME2. The functions try the flag in each call, because the kernel
// refuses it without asking a server. Thread-safe.
namespace cacheshim::sys {

enum class RenameSupport {
  kFlags,  // RENAME_NOREPLACE and RENAME_EXCHANGE
  kLinks,  // not both flags, but RENAME_NOREPLACE or hard links
  kNone,   // rename_new_at() gives EINVAL
};
std::string_view to_string(RenameSupport support);  // "flags", "links" or "none"
// Determines what the file system of `dir` supports, with files that it creates there and removes. Errors: of the system
// calls, for example EROFS.
Result<RenameSupport> probe_renames(int dir);

// Renames if `new_dir` has no object named `new_name`. Without RENAME_NOREPLACE, the function uses link(2) and unlink(2)
// for a file, which for a short time has both names, and rename(2) for a directory, which also replaces an empty
// directory. Errors: EEXIST; EINVAL if the file system has neither the flag nor hard links.
Status rename_new_at(int dir, const std::string& name, int new_dir, const std::string& new_name);

struct NameAt {
  int dir;
  std::string name;
};
// Renames the object `from` to `to`, and the object that had the name `to` before to `aside`, which must not exist. All
// names must be on one file system. Without RENAME_EXCHANGE, no object has the name `to` for a short time. After an
// error, both objects normally have their names. Errors: ENOENT if an object is missing; EEXIST if another process has
// meanwhile created `to`, and the object that had this name is then `aside`.
Status displace_at(const NameAt& from, const NameAt& to, const NameAt& aside);

}  // namespace cacheshim::sys
