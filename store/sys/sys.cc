// SPDX-License-Identifier: Apache-2.0
#include "store/sys/sys.h"

#include <fcntl.h>
#include <signal.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

#include "store/sys/file_system.h"
#include "store/sys/system_calls.h"

namespace cacheshim::sys {
namespace {

Status status_of(int rc) {
  if (rc == -1) return Errno::last();
  return {};
}

// The path of an open file in /proc/self/fd, for calls that accept no O_PATH descriptor.
class ProcPath {
 public:
  explicit ProcPath(int fd) { std::snprintf(text_, sizeof text_, "/proc/self/fd/%d", fd); }
  const char* get() const { return text_; }

 private:
  char text_[32];
};

ssize_t list_xattrs_into(int fd, std::string& block) {
  const ssize_t length = ::flistxattr(fd, block.data(), block.size());
  if (length != -1 || errno != EBADF) return length;
  return ::listxattr(ProcPath(fd).get(), block.data(), block.size());
}

// `get`: getxattr(2), or lgetxattr(2).
Result<std::string> get_xattr_by(decltype(&::getxattr) get, const char* path, const char* name) {
  std::string value(256, '\0');
  for (;;) {
    const ssize_t length = get(path, name, value.data(), value.size());
    if (length >= 0) {
      value.resize(static_cast<std::size_t>(length));
      return value;
    }
    if (errno != ERANGE || value.size() >= XATTR_SIZE_MAX) return Errno::last();
    value.resize(XATTR_SIZE_MAX);
  }
}

Result<UniqueFd> open_step(int dir, const char* path, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_CLOEXEC);
  constexpr int kMakes = O_CREAT | (O_TMPFILE & ~O_DIRECTORY);
  how.mode = (flags & kMakes) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  for (;;) {
    const long fd = ::syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd >= 0) return UniqueFd(static_cast<int>(fd));
    // EAGAIN: a rename elsewhere raced with the walk (openat2(2)).
    if (errno != EAGAIN && errno != EINTR) return Errno::last();
  }
}

}  // namespace

Result<UniqueFd> open_beneath(int dir, std::string_view path, int flags, mode_t mode) {
  if (path.empty()) return open_step(dir, ".", flags, mode);
  UniqueFd step;
  while (path.size() >= PATH_MAX) {
    const auto cut = path.rfind('/', PATH_MAX - 2);
    if (cut == std::string_view::npos) return Errno(ENAMETOOLONG);
    CACHESHIM_TRY(next, open_step(step ? step.get() : dir, std::string(path.substr(0, cut)).c_str(),
                                  O_PATH | O_DIRECTORY, 0));
    step = std::move(next);
    path.remove_prefix(cut + 1);
  }
  return open_step(step ? step.get() : dir, std::string(path).c_str(), flags, mode);
}

Result<UniqueFd> open_path(const std::string& path, int flags, mode_t mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd == -1) return Errno::last();
  return UniqueFd(fd);
}

namespace {

Result<UniqueFd> clone_mount(int dir, std::uint64_t attributes, std::uint64_t cleared = 0) {
  const int tree =
      sys::open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
  if (tree == -1) return Errno::last();
  UniqueFd clone(tree);
  struct mount_attr change {};
  change.attr_set = attributes;
  change.attr_clr = cleared;
  // Mounts and unmounts propagate from the original to the clone, but not from the clone to the original.
  change.propagation = MS_SLAVE;
  if (sys::mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &change, sizeof change) == -1) {
    return Errno::last();
  }
  return clone;
}

}  // namespace

Result<UniqueFd> clone_without_symlinks(int dir) {
  return clone_mount(dir, MOUNT_ATTR_NOSYMFOLLOW);
}

// Sets noatime, because otherwise the kernel would try to set the access time at each read, and fail. In a user
// namespace, the options for access times may be locked (EPERM); the clone then keeps the original mount's options.
Result<UniqueFd> clone_read_only(int dir) {
  constexpr std::uint64_t kSafe =
      MOUNT_ATTR_NOSYMFOLLOW | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  auto clone = clone_mount(dir, kSafe | MOUNT_ATTR_NOATIME, MOUNT_ATTR__ATIME);
  return clone.failed_with(EPERM) ? clone_mount(dir, kSafe) : std::move(clone);
}

Status mount_clone(int clone, const std::string& path) {
  if (sys::move_mount(clone, "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) == -1) {
    return Errno::last();
  }
  return {};
}

Result<struct stat> stat_at(int dir, const std::string& name) {
  struct stat st;
  if (::fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) == -1) {
    return Errno::last();
  }
  return st;
}

Result<struct stat> stat_fd(int fd) {
  struct stat st;
  if (::fstat(fd, &st) == -1) return Errno::last();
  return st;
}

Status revalidate_attributes(int fd) {
  struct statx ignored;
  constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_FORCE_SYNC;
  return status_of(::statx(fd, "", kFlags, STATX_MTIME, &ignored));
}

bool still_names(int dir, const std::string& name, int fd) {
  (void)revalidate_attributes(dir);
  const auto named = stat_at(dir, name);
  const auto opened = stat_fd(fd);
  return named && opened && named->st_dev == opened->st_dev && named->st_ino == opened->st_ino;
}

Result<struct statvfs> statvfs_fd(int fd) {
  struct statvfs st;
  if (::fstatvfs(fd, &st) == -1) return Errno::last();
  return st;
}

Result<std::string> file_handle(int dir, const std::string& name) {
  alignas(struct ::file_handle) char space[sizeof(struct ::file_handle) + MAX_HANDLE_SZ];
  auto* handle = reinterpret_cast<struct ::file_handle*>(space);
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount_id = 0;
  const int flags = name.empty() ? AT_EMPTY_PATH : 0;
  if (::name_to_handle_at(dir, name.c_str(), handle, &mount_id, flags) == -1) return Errno::last();
  const auto* type = reinterpret_cast<const char*>(&handle->handle_type);
  std::string bytes(type, sizeof handle->handle_type);
  bytes.append(reinterpret_cast<const char*>(handle->f_handle), handle->handle_bytes);
  return bytes;
}

Status make_dir_at(int dir, const std::string& name, mode_t mode) {
  return status_of(::mkdirat(dir, name.c_str(), mode));
}

Status ensure_dir_at(int dir, const std::string& name, mode_t mode) {
  const Status made = make_dir_at(dir, name, mode);
  return made.failed_with(EEXIST) ? Status() : made;
}

Status make_node_at(int dir, const std::string& name, mode_t mode, dev_t device) {
  return status_of(::mknodat(dir, name.c_str(), mode, device));
}

Status make_symlink_at(const std::string& target, int dir, const std::string& name) {
  return status_of(::symlinkat(target.c_str(), dir, name.c_str()));
}

Result<std::string> read_link_at(int dir, const std::string& name) {
  std::string target(PATH_MAX, '\0');
  const ssize_t length = ::readlinkat(dir, name.c_str(), target.data(), target.size());
  if (length == -1) return Errno::last();
  target.resize(static_cast<std::size_t>(length));
  return target;
}

Status unlink_at(int dir, const std::string& name, int flags) {
  return status_of(::unlinkat(dir, name.c_str(), flags));
}

Status rename_at(int dir, const std::string& name, int new_dir, const std::string& new_name,
                 unsigned flags) {
  return status_of(::renameat2(dir, name.c_str(), new_dir, new_name.c_str(), flags));
}

Status link_at(int dir, const std::string& name, int new_dir, const std::string& new_name) {
  return status_of(::linkat(dir, name.c_str(), new_dir, new_name.c_str(), 0));
}

Status link_fd(int fd, int new_dir, const std::string& new_name) {
  return status_of(
      ::linkat(AT_FDCWD, ProcPath(fd).get(), new_dir, new_name.c_str(), AT_SYMLINK_FOLLOW));
}

Result<UniqueFd> reopen(int fd, int flags) { return open_path(ProcPath(fd).get(), flags); }

// Tries the direct call first: a call through /proc, which an O_PATH descriptor needs, takes three
// times as long.
Status set_mode(int fd, mode_t mode) {
  if (::fchmod(fd, mode) == 0) return {};
  if (errno != EBADF) return Errno::last();
  return status_of(::chmod(ProcPath(fd).get(), mode));
}

Status check_access(int fd, int mode) {
  return status_of(::faccessat(AT_FDCWD, ProcPath(fd).get(), mode, AT_EACCESS));
}

Status set_mode_at(int dir, const std::string& path, mode_t mode) {
  return status_of(::fchmodat(dir, path.c_str(), mode, 0));
}

Status set_owner(int fd, uid_t uid, gid_t gid) {
  return status_of(::fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
}

Status set_size(int fd, off_t size_bytes) {
  if (::ftruncate(fd, size_bytes) == 0) return {};
  if (errno != EBADF && errno != EINVAL) return Errno::last();
  return status_of(::truncate(ProcPath(fd).get(), size_bytes));
}

Status set_times(int fd, const timespec times[2]) {
  // With an empty path, the call acts on the object itself, even on a symlink, and accepts an
  // O_PATH descriptor (Linux 5.8).
  if (::utimensat(fd, "", times, AT_EMPTY_PATH) == 0) return {};
  if (errno != EINVAL && errno != ENOENT) return Errno::last();
  return status_of(::utimensat(AT_FDCWD, ProcPath(fd).get(), times, 0));
}

Status set_xattr(int fd, const char* name, std::string_view value, int flags) {
  return status_of(::setxattr(ProcPath(fd).get(), name, value.data(), value.size(), flags));
}

Status remove_xattr(int fd, const char* name) {
  return status_of(::removexattr(ProcPath(fd).get(), name));
}

Result<std::string> get_xattr(int fd, const char* name) {
  return get_xattr_by(::getxattr, ProcPath(fd).get(), name);
}

Result<std::vector<std::string>> list_xattrs(int fd) {
  std::string block(256, '\0');
  ssize_t length = list_xattrs_into(fd, block);
  if (length == -1 && errno == ERANGE) {
    block.resize(XATTR_LIST_MAX);
    length = list_xattrs_into(fd, block);
  }
  if (length == -1) return Errno::last();
  std::vector<std::string> names;
  std::string_view rest(block.data(), static_cast<std::size_t>(length));
  while (!rest.empty()) {
    const auto end = rest.find('\0');
    names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return names;
}

Status set_owner_at(int dir, const std::string& name, uid_t uid, gid_t gid) {
  return status_of(::fchownat(dir, name.c_str(), uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
}

Status set_times_at(int dir, const std::string& name, const timespec times[2]) {
  if (name.empty()) return set_times(dir, times);
  return status_of(::utimensat(dir, name.c_str(), times, AT_SYMLINK_NOFOLLOW));
}

// Uses a path in /proc, because getxattrat(2) exists only since Linux 6.13.
Result<std::string> get_xattr_at(int dir, const std::string& name, const char* xattr) {
  std::string path = ProcPath(dir).get();
  path.append(1, '/').append(name.empty() ? "." : name);
  if (path.size() >= PATH_MAX) {
    CACHESHIM_TRY(object, open_beneath(dir, name, O_PATH | O_NOFOLLOW));
    return get_xattr(object.get(), xattr);
  }
  return get_xattr_by(::lgetxattr, path.c_str(), xattr);
}

Status sync_file(int fd) { return status_of(::fsync(fd)); }

Status lock_file(int fd, int operation) { return status_of(::flock(fd, operation)); }

// The kernel grants a read lease (F_SETLEASE, fcntl(2)) only if no process has the file open for
// writing. If a process opens the file for writing during the lease, the kernel sends the daemon
// SIGURG, which is ignored by default.
bool can_be_written(int fd) {
  (void)::fcntl(fd, F_SETSIG, SIGURG);  // cannot fail for a known signal
  const bool refused = ::fcntl(fd, F_SETLEASE, F_RDLCK) == -1 && errno == EAGAIN;
  (void)::fcntl(fd, F_SETLEASE, F_UNLCK);  // has no effect if the lease was refused
  // NFS returns EAGAIN for every file for which the client has no delegation, even if no process can write to the file.
  return refused && is_local_file_system(fd);
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written == -1 && errno == EINTR) continue;
    if (written == -1) return Errno::last();
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<std::string> read_all(int fd, std::size_t most_bytes) {
  std::string bytes;
  char part[64 * 1024];
  for (;;) {
    const ssize_t count = ::read(fd, part, sizeof part);
    if (count == -1 && errno == EINTR) continue;
    if (count == -1) return Errno::last();
    if (count == 0) return bytes;
    if (static_cast<std::size_t>(count) > most_bytes - bytes.size()) return Errno(EFBIG);
    bytes.append(part, static_cast<std::size_t>(count));
  }
}

Result<std::string> read_file(int dir, const std::string& name) {
  // O_NONBLOCK: opening a FIFO must not block.
  CACHESHIM_TRY(fd, open_beneath(dir, name, O_RDONLY | O_NONBLOCK));
  return read_all(fd.get());
}

Result<std::vector<DirEntry>> list_dir(int dir) {
  CACHESHIM_TRY(readable, open_beneath(dir, "", O_RDONLY | O_DIRECTORY));
  return read_dir(readable.get());
}

// Does not use readdir(3), because its stream needs an allocation of 32 KiB and three more system calls.
Result<std::vector<DirEntry>> read_dir(int dir) {
  CACHESHIM_TRY(directory, stat_fd(dir));
  std::vector<DirEntry> entries;
  alignas(dirent64) char block[16 * 1024];
  for (;;) {
    const ssize_t length = sys::getdents64(dir, block, sizeof block);
    if (length == -1) return Errno::last();
    if (length == 0) return entries;
    for (ssize_t at = 0; at < length;) {
      const auto* entry = reinterpret_cast<const dirent64*>(block + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") {
        entries.push_back({std::string(name), entry->d_type, entry->d_ino, directory.st_dev});
      }
    }
  }
}

bool is_private_dir(const struct stat& st, uid_t owner) {
  const bool is_ours = st.st_uid == 0 || st.st_uid == own_uid() || st.st_uid == owner;
  return S_ISDIR(st.st_mode) && is_ours && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

uid_t own_uid() {
  static const uid_t uid = ::geteuid();
  return uid;
}

gid_t own_gid() {
  static const gid_t gid = ::getegid();
  return gid;
}

Status replace_file(int dir, const std::string& name, std::string_view bytes, mode_t mode,
                    std::string_view suffix) {
  const std::string staged = name + std::string(suffix);
  CACHESHIM_TRY(fd, open_beneath(dir, staged, O_WRONLY | O_CREAT | O_TRUNC, mode));
  CACHESHIM_CHECK(write_all(fd.get(), bytes));
  CACHESHIM_CHECK(sync_file(fd.get()));
  return rename_at(dir, staged, dir, name);
}

namespace {

// Empties the directory `name` in `directory`, and removes it: removes its files, and moves the other objects into
// `directory`.
Status hoist(int directory, const std::string& name, unsigned& moved, const IsWanted& is_wanted) {
  CACHESHIM_TRY(deeper, open_beneath(directory, name, O_RDONLY | O_DIRECTORY));
  CACHESHIM_TRY(entries, read_dir(deeper.get()));
  for (const DirEntry& entry : entries) {
    if (!is_still_wanted(is_wanted)) return Errno(ECANCELED);
    if (entry.type != DT_DIR && unlink_at(deeper.get(), entry.name)) continue;
    Status status;
    do {
      const std::string free_name = ".cacheshim-removed-" + std::to_string(moved++);
      // rename(2) may replace an empty directory, which is harmless here
      status = rename_at(deeper.get(), entry.name, directory, free_name);
    } while (status.failed_with(EEXIST) || status.failed_with(ENOTEMPTY) ||
             status.failed_with(ENOTDIR));
    if (!status && !status.failed_with(ENOENT)) return status;
  }
  return unlink_at(directory, name, AT_REMOVEDIR);
}

// Removes the contents of the open directory `directory`. If a subdirectory is not empty, moves its subdirectories up
// into `directory`. Returns false if `directory` was already empty. `moved` numbers the new names, so that they are
// unique.
Result<bool> empty_once(int directory, unsigned& moved, const IsWanted& is_wanted) {
  CACHESHIM_TRY(entries, list_dir(directory));
  Status first_error;
  for (const DirEntry& entry : entries) {
    if (!is_still_wanted(is_wanted)) return Errno(ECANCELED);
    const Status removed = unlink_at(directory, entry.name);
    if (removed || removed.failed_with(ENOENT)) continue;
    Status status = removed;
    if (removed.failed_with(EISDIR) || removed.failed_with(EPERM)) {
      status = unlink_at(directory, entry.name, AT_REMOVEDIR);
      if (status.failed_with(ENOTEMPTY)) status = hoist(directory, entry.name, moved, is_wanted);
    }
    if (!status && !status.failed_with(ENOENT) && first_error) first_error = status;
  }
  if (!first_error) return first_error.error();
  return !entries.empty();
}

}  // namespace

// Uses neither recursion nor one descriptor per level, because a job can make trees of any depth.
Status remove_tree(int dir, const std::string& name, const IsWanted& is_wanted) {
  const Status removed = unlink_at(dir, name);
  if (removed || removed.failed_with(ENOENT)) return {};
  if (!removed.failed_with(EISDIR) && !removed.failed_with(EPERM)) return removed.error();
  CACHESHIM_TRY(directory, open_beneath(dir, name, O_RDONLY | O_DIRECTORY));
  unsigned moved = 0;
  for (;;) {
    CACHESHIM_TRY(is_left, empty_once(directory.get(), moved, is_wanted));
    if (!is_left) return unlink_at(dir, name, AT_REMOVEDIR);
  }
}

}  // namespace cacheshim::sys
