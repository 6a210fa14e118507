// SPDX-License-Identifier: Apache-2.0
#include "store/new_object.h"

#include <fcntl.h>
#include <unistd.h>

#include "store/sys.h"

// The object is made under the service account, without set-id bits, then given away, then gets the
// bits: at no moment is there a set-user-id file of the service account that a job has asked for. The
// other way, changing the thread's fsuid, would take away the rights that walking to the folder needs.
namespace cacheshim {
namespace {

constexpr mode_t kSetIds = S_ISUID | S_ISGID;

// The backing file system applies a default ACL by itself, and then no umask.
mode_t masked_mode(int folder, const NewObject& wanted) {
  if (!wanted.maker || (wanted.mode & wanted.maker->umask) == 0) return wanted.mode;
  if (sys::has_xattr(folder, kDefaultAcl)) return wanted.mode;
  return wanted.mode & ~wanted.maker->umask;
}

// Gives what has just been made away. Returns whether it is the maker's now.
Result<bool> give_to_maker(int folder, int fd, const Maker& maker) {
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  CACHESHIM_TRY(parent, sys::stat_fd(folder));
  const gid_t group = (parent.st_mode & S_ISGID) != 0 ? parent.st_gid : maker.gid;
  if (st.st_uid == maker.uid && st.st_gid == group) return true;
  return give_away(fd, maker.uid, group);
}

Status finish(int folder, int fd, const NewObject& wanted) {
  if (!wanted.maker) return {};
  CACHESHIM_TRY(given, give_to_maker(folder, fd, *wanted.maker));
  const mode_t set_ids = wanted.mode & kSetIds;
  if (set_ids == 0 || !given) return {};
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  return sys::set_mode(fd, (st.st_mode & 07777) | set_ids);
}

mode_t first_mode(int folder, const NewObject& wanted) {
  const mode_t mode = masked_mode(folder, wanted);
  return wanted.maker ? mode & ~kSetIds : mode;
}

// For objects that are made without being opened.
Status finish_name(int folder, const std::string& name, const NewObject& wanted, int unlink_flags) {
  if (!wanted.maker) return {};
  const Status finished = [&]() -> Status {
    CACHESHIM_TRY(fd, sys::open_beneath(folder, name, O_PATH | O_NOFOLLOW));
    return finish(folder, fd.get(), wanted);
  }();
  if (!finished) (void)sys::unlink_at(folder, name, unlink_flags);  // the first error is told
  return finished;
}

}  // namespace

Result<bool> give_away(int fd, uid_t uid, gid_t gid) {
  const Status given = sys::set_owner(fd, uid, gid);
  // EINVAL: an id that our user namespace does not have.
  if (given.failed_with(EPERM) || given.failed_with(EINVAL)) return false;
  if (!given) return given.error();
  return true;
}

Result<UniqueFd> make_file_as(int folder, const std::string& name, int flags,
                              const NewObject& wanted) {
  CACHESHIM_TRY(fd, sys::open_beneath(folder, name, flags | O_CREAT | O_EXCL | O_NOFOLLOW,
                                      first_mode(folder, wanted)));
  const Status finished = finish(folder, fd.get(), wanted);
  if (finished) return fd;
  (void)sys::unlink_at(folder, name);  // the first error is told
  return finished.error();
}

Result<UniqueFd> make_tmpfile_as(int folder, int flags, const NewObject& wanted) {
  CACHESHIM_TRY(fd, sys::open_beneath(folder, "", flags | O_TMPFILE, first_mode(folder, wanted)));
  CACHESHIM_CHECK(finish(folder, fd.get(), wanted));
  return fd;
}

Status make_dir_as(int folder, const std::string& name, const NewObject& wanted) {
  CACHESHIM_CHECK(sys::make_dir_at(folder, name, first_mode(folder, wanted)));
  return finish_name(folder, name, wanted, AT_REMOVEDIR);
}

Status make_node_as(int folder, const std::string& name, const NewObject& wanted) {
  CACHESHIM_CHECK(sys::make_node_at(folder, name, first_mode(folder, wanted), wanted.device));
  return finish_name(folder, name, wanted, 0);
}

Status make_symlink_as(const std::string& target, int folder, const std::string& name,
                       const NewObject& wanted) {
  CACHESHIM_CHECK(sys::make_symlink_at(target, folder, name));
  return finish_name(folder, name, NewObject(0, 0, wanted.maker), 0);
}

}  // namespace cacheshim
