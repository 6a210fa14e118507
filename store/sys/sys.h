// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/threads/slices.h"

// Wrappers of the system calls that the store and the daemon use. They return a result instead of -1 and errno. They
// open descriptors with O_CLOEXEC, and return them as UniqueFd. Functions that take a directory and a name do not
// follow a symlink in the last component (set_mode_at() does). Only open_beneath() and functions that use it, such as
// read_file(), also reject symlinks in the other components. All are thread-safe; errors are those of the call's man
// page unless stated otherwise.
namespace cacheshim::sys {

// openat2(2) with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS: no object that a
// job has created below `dir` can lead outside. "" is `dir` itself; a path of PATH_MAX bytes or
// more is opened in parts. Errors: ELOOP for a symlink in the path (with O_PATH | O_NOFOLLOW, a
// symlink in the last component is itself opened), EXDEV for a path that leads outside.
Result<UniqueFd> open_beneath(int dir, std::string_view path, int flags, mode_t mode = 0);

// open(2) of the daemon's own paths (a store's root, /proc), never of a path that a job has chosen.
// Follows symlinks.
Result<UniqueFd> open_path(const std::string& path, int flags, mode_t mode = 0);

// Returns a clone of the mount that contains the open directory `dir`, with the mounts below it. The
// clone has `dir` as its root, is attached nowhere, and follows no symlinks. Errors: EPERM without
// privilege over the mount namespace, ENOSYS before Linux 5.12, EINVAL before Linux 5.14.
Result<UniqueFd> clone_without_symlinks(int dir);
// As clone_without_symlinks(), but also read-only, nosuid and nodev. mount_clone() mounts the clone
// at `path`.
Result<UniqueFd> clone_read_only(int dir);
Status mount_clone(int clone, const std::string& path);

// fstatat(2) of `name`, without following a symlink; if `name` is "", of `dir` itself.
Result<struct stat> stat_at(int dir, const std::string& name);
Result<struct stat> stat_fd(int fd);
// Makes the kernel ask the file server for the attributes of the open object; `fd` may be an O_PATH descriptor. If the
// object is a directory that another machine has changed, the kernel then looks up its names again. Errors: ESTALE if
// the object is gone.
Status revalidate_attributes(int fd);
// Whether `name` in the directory `dir` still leads to the open file `fd`. Also detects changes
// that another machine has made to the directory.
bool still_names(int dir, const std::string& name, int fd);
Result<struct statvfs> statvfs_fd(int fd);
// Returns the file system's identifier of the object (name_to_handle_at(2)). It stays the same
// during the object's lifetime, and no later object gets it. `name` as in stat_at(). Errors:
// EOPNOTSUPP.
Result<std::string> file_handle(int dir, const std::string& name = "");

Status make_dir_at(int dir, const std::string& name, mode_t mode);
// As make_dir_at(), but succeeds if the name exists, whatever it leads to.
Status ensure_dir_at(int dir, const std::string& name, mode_t mode);
Status make_node_at(int dir, const std::string& name, mode_t mode, dev_t device);
Status make_symlink_at(const std::string& target, int dir, const std::string& name);
Result<std::string> read_link_at(int dir, const std::string& name);
Status unlink_at(int dir, const std::string& name, int flags = 0);
Status rename_at(int dir, const std::string& name, int new_dir, const std::string& new_name,
                 unsigned flags = 0);
Status link_at(int dir, const std::string& name, int new_dir, const std::string& new_name);
// Gives the open file `fd` another name, or its first name if it was opened with O_TMPFILE. Errors:
// ENOENT if the file has lost its last name.
Status link_fd(int fd, int new_dir, const std::string& new_name);
// Requires: no other user can change `dir` or a directory below it, because symlinks in the path
// are followed.
Status set_mode_at(int dir, const std::string& path, mode_t mode);

// The next functions work on any descriptor, including O_PATH descriptors (through /proc/self/fd).
Result<UniqueFd> reopen(int fd, int flags);
Status set_mode(int fd, mode_t mode);
Status check_access(int fd, int mode);           // access(2), with the daemon's effective ids
Status set_owner(int fd, uid_t uid, gid_t gid);  // an id of -1 is not changed; acts on a symlink itself
Status set_size(int fd, off_t size_bytes);
Status set_times(int fd, const timespec times[2]);
Status set_xattr(int fd, const char* name, std::string_view value, int flags);
Status remove_xattr(int fd, const char* name);
Result<std::string> get_xattr(int fd, const char* name);
Result<std::vector<std::string>> list_xattrs(int fd);

// In the next functions, `name` is relative to `dir`; "" is `dir` itself. They do not follow a symlink
// in the last component.
Status set_owner_at(int dir, const std::string& name, uid_t uid, gid_t gid);
Status set_times_at(int dir, const std::string& name, const timespec times[2]);
Result<std::string> get_xattr_at(int dir, const std::string& name, const char* xattr);

Status sync_file(int fd);
Status lock_file(int fd, int operation);  // flock(2)
// Whether any process of this machine can write to the file, through a descriptor or a mapping. Requires: `fd` is open
// for reading only, and no process opens the file during the call. Also returns false if the daemon cannot get a kernel
// lease on the file at all: other machines can change the file system, the file system does not support kernel leases,
// or another user owns the file and the daemon lacks CAP_LEASE. On a file system that other machines can change, the
// kernel sends all writes to a layer's files to the daemon, because passthrough is enabled only on local file systems.
bool can_be_written(int fd);
Status write_all(int fd, std::string_view bytes);
inline constexpr std::size_t kMostReadBytes = std::size_t{64} << 20;  // the default limit of read_all()
// Reads to the end of the file. Errors: EFBIG if the file has more than `most_bytes`.
Result<std::string> read_all(int fd, std::size_t most_bytes = kMostReadBytes);
Result<std::string> read_file(int dir, const std::string& name);

struct DirEntry {
  std::string name;
  unsigned char type;  // DT_*; DT_UNKNOWN if the file system does not report it
  ino_t ino;
  dev_t device;  // the device of the directory
};
// Returns all entries of a directory except "." and "..". `dir` may be any descriptor of the directory,
// including an O_PATH descriptor.
Result<std::vector<DirEntry>> list_dir(int dir);
// As list_dir(), but reads through `dir` itself, which must be open for reading, with offset 0.
Result<std::vector<DirEntry>> read_dir(int dir);

// Whether only root, the service account and `owner` can change the contents of this directory.
bool is_private_dir(const struct stat& st, uid_t owner);

// Return the ids of the service account, which do not change while the process lives.
uid_t own_uid();
gid_t own_gid();

// Replaces the file `name` with a new file that contains `bytes`: writes the file `name` + `suffix`,
// syncs it, then renames it. Does not sync `dir`. Requires: no other thread or process replaces the
// same file with the same suffix at the same time.
Status replace_file(int dir, const std::string& name, std::string_view bytes, mode_t mode,
                    std::string_view suffix = ".new");

// Removes `name` and everything below it; an absent name is not an error. If an object cannot be
// removed, still tries the others in its directory, and returns the first error. The objects that
// remain may have been moved up into `name` and renamed. Errors: ECANCELED (slices.h).
Status remove_tree(int dir, const std::string& name, const IsWanted& is_wanted = {});

}  // namespace cacheshim::sys
