// SPDX-License-Identifier: Apache-2.0
#include "store/sys/new_object.h"

#include <fcntl.h>

#include "store/sys/paths.h"
#include "store/sys/sys.h"

// The service account creates the object without set-id bits, then changes the owner, then sets the
// bits. So a job can never cause a set-user-id file of the service account to exist. The
// alternative, changing the thread's fsuid, would drop the rights that are needed to open the
// directory.
namespace cacheshim {
namespace {

constexpr mode_t kSetIds = S_ISUID | S_ISGID;

// Identifies an object by its name relative to the descriptor `dir`; "" is the object of `dir` itself.
struct Named {
  int dir;
  std::string name;
};

Named directory_of(int dir, const std::string& name) {
  return {dir, std::string(parent_path(name))};
}

// If the directory has a default ACL, the backing file system applies the ACL, and the umask has no
// effect.
mode_t masked_mode(const Named& directory, const NewObject& wanted) {
  if (!wanted.maker || (wanted.mode & wanted.maker->umask) == 0) return wanted.mode;
  if (sys::get_xattr_at(directory.dir, directory.name, kDefaultAcl)) return wanted.mode;
  return wanted.mode & ~wanted.maker->umask;
}

mode_t first_mode(const Named& directory, const NewObject& wanted) {
  const mode_t mode = masked_mode(directory, wanted);
  return wanted.maker ? mode & ~kSetIds : mode;
}

// Whether new objects in a directory belong to this maker from the start. Their group is the
// service account's or, on a file system mounted with `grpid`, the directory's.
bool has_owner_at_creation(const struct stat& directory, const Maker& maker) {
  if (maker.uid != sys::own_uid()) return false;
  if ((directory.st_mode & S_ISGID) != 0) return true;
  return maker.gid == sys::own_gid() && maker.gid == directory.st_gid;
}

// Whether the error means that the daemon may not change the owner. EINVAL: the daemon's user
// namespace does not map the id.
bool is_refusal(const Status& given) {
  return given.failed_with(EPERM) || given.failed_with(EINVAL);
}

// Changes the owner of a new object to the maker. Returns true if the maker now owns it.
Result<bool> give_to_maker(const Named& object, const struct stat& directory, const Maker& maker) {
  const gid_t group = (directory.st_mode & S_ISGID) != 0 ? directory.st_gid : maker.gid;
  const Status given = sys::set_owner_at(object.dir, object.name, maker.uid, group);
  if (given) return true;
  CACHESHIM_TRY(st, sys::stat_at(object.dir, object.name));
  if (st.st_uid == maker.uid && st.st_gid == group) return true;  // nothing needs to change
  if (!is_refusal(given)) return given.error();
  return false;
}

Status add_set_ids(const Named& object, mode_t set_ids) {
  if (object.name.empty()) {
    CACHESHIM_TRY(st, sys::stat_fd(object.dir));
    return sys::set_mode(object.dir, (st.st_mode & 07777) | set_ids);
  }
  CACHESHIM_TRY(fd, sys::open_beneath(object.dir, object.name, O_PATH | O_NOFOLLOW));
  return add_set_ids({fd.get(), ""}, set_ids);
}

Status finish(const Named& directory, const Named& object, const NewObject& wanted) {
  if (!wanted.maker) return {};
  CACHESHIM_TRY(directory_st, sys::stat_at(directory.dir, directory.name));
  const mode_t set_ids = wanted.mode & kSetIds;
  if (set_ids == 0 && has_owner_at_creation(directory_st, *wanted.maker)) return {};
  CACHESHIM_TRY(given, give_to_maker(object, directory_st, *wanted.maker));
  return set_ids != 0 && given ? add_set_ids(object, set_ids) : Status();
}

// Finishes an object that was created without being opened.
Status finish_name(int dir, const std::string& name, const NewObject& wanted, int unlink_flags) {
  const Status finished = finish(directory_of(dir, name), {dir, name}, wanted);
  if (!finished) (void)sys::unlink_at(dir, name, unlink_flags);  // the caller gets the first error
  return finished;
}

}  // namespace

Result<bool> change_owner(int fd, uid_t uid, gid_t gid) {
  const Status given = sys::set_owner(fd, uid, gid);
  if (is_refusal(given)) return false;
  if (!given) return given.error();
  return true;
}

Result<UniqueFd> make_file_as(int dir, const std::string& name, int flags,
                              const NewObject& wanted) {
  const Named directory = directory_of(dir, name);
  CACHESHIM_TRY(fd, sys::open_beneath(dir, name, flags | O_CREAT | O_EXCL | O_NOFOLLOW,
                                      first_mode(directory, wanted)));
  const Status finished = finish(directory, {fd.get(), ""}, wanted);
  if (finished) return fd;
  (void)sys::unlink_at(dir, name);  // the caller gets the first error
  return finished.error();
}

Result<UniqueFd> make_tmpfile_as(int directory, int flags, const NewObject& wanted) {
  const Named named{directory, ""};
  CACHESHIM_TRY(fd, sys::open_beneath(directory, "", flags | O_TMPFILE, first_mode(named, wanted)));
  CACHESHIM_CHECK(finish(named, {fd.get(), ""}, wanted));
  return fd;
}

Status make_dir_as(int dir, const std::string& name, const NewObject& wanted) {
  CACHESHIM_CHECK(sys::make_dir_at(dir, name, first_mode(directory_of(dir, name), wanted)));
  return finish_name(dir, name, wanted, AT_REMOVEDIR);
}

Status make_node_as(int dir, const std::string& name, const NewObject& wanted) {
  const mode_t mode = first_mode(directory_of(dir, name), wanted);
  CACHESHIM_CHECK(sys::make_node_at(dir, name, mode, wanted.device));
  return finish_name(dir, name, wanted, 0);
}

Status make_symlink_as(const std::string& target, int dir, const std::string& name,
                       const NewObject& wanted) {
  CACHESHIM_CHECK(sys::make_symlink_at(target, dir, name));
  return finish_name(dir, name, NewObject(0, 0, wanted.maker), 0);
}

}  // namespace cacheshim
