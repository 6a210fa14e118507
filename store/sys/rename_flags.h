// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "store/sys/sys.h"

// Renames for file systems that lack the flags of renameat2(2). With a flag, renameat2 fails with EINVAL on NFS, on
// GlusterFS, and on FUSE file systems without FUSE_RENAME2. Each call tries the flag first, because the attempt is
// fast: the kernel refuses the flag without asking a server. Thread-safe.
namespace cacheshim::sys {

enum class RenameSupport {
  kFlags,  // RENAME_NOREPLACE and RENAME_EXCHANGE
  kLinks,  // not both flags, but RENAME_NOREPLACE or hard links
  kNone,   // rename_new_at() fails with EINVAL
};
std::string_view to_string(RenameSupport support);  // "flags", "links" or "none"
// Determines what the file system of `dir` supports, by creating, renaming and removing files in `dir`. Errors: those
// of the system calls, for example EROFS.
Result<RenameSupport> probe_renames(int dir);

// Renames if `new_dir` has no object named `new_name`. If the file system lacks RENAME_NOREPLACE, a file is renamed by
// link(2) and unlink(2), and has both names for a short time; a directory is renamed by rename(2), which also replaces
// an empty directory. Errors: EEXIST; EINVAL if the file system has neither the flag nor hard links.
Status rename_new_at(int dir, const std::string& name, int new_dir, const std::string& new_name);

struct NameAt {
  int dir;
  std::string name;
};
// Renames the object `to` to `aside`, which must not exist, and the object `from` to `to`. All names must be on one
// file system. If the file system lacks RENAME_EXCHANGE, the name `to` is absent for a short time. After an error, both
// objects normally still have their old names. Errors: ENOENT if an object is missing; EEXIST if another process has
// created `to` while the name was absent. After EEXIST, the old object `to` has the name `aside`.
Status displace_at(const NameAt& from, const NameAt& to, const NameAt& aside);

}  // namespace cacheshim::sys
