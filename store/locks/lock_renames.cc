// SPDX-License-Identifier: Apache-2.0
#include "store/locks/lock_renames.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "store/sys/copy_file.h"
#include "store/sys/job_xattrs.h"
#include "store/sys/new_object.h"
#include "store/sys/paths.h"
#include "store/sys/rename_flags.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// If the file system does not support RENAME_EXCHANGE, returns EINVAL, as in a directory without cacheshim.
Status rename_with(int dir, const std::string& name, int new_dir, std::string_view new_path,
                   unsigned flags) {
  const std::string new_name(base_name(new_path));
  if (flags == RENAME_NOREPLACE) return sys::rename_new_at(dir, name, new_dir, new_name);
  return sys::rename_at(dir, name, new_dir, new_name, flags);
}

}  // namespace

Status LockRenames::check_becomes_lock(const struct stat& st, const std::string& path) const {
  if (!entries_.is_lock(path)) return Errno(EXDEV);
  return st.st_size > kMostLockBytes ? Status(Errno(EFBIG)) : Status();
}

// Returns EEXIST if the base has the name. Call before prepare_arrival(): a file that cannot get the name should keep
// its attributes. Another process may still create the name after this check.
Status LockRenames::check_free(int parent, const std::string& path) {
  return sys::stat_at(parent, std::string(base_name(path))) ? Errno(EEXIST) : Status();
}

// Call before the file gets its name in the base. Gives the file to the service account first, because restrict()
// requires this owner. Also clears the set-id bits: otherwise any user could execute the job's file with the service
// account's rights.
Status LockRenames::prepare_arrival(int object) const {
  CACHESHIM_TRY(is_ours, change_owner(object, sys::own_uid(), sys::own_gid()));
  if (!is_ours) return Errno(EPERM);
  CACHESHIM_CHECK(remove_job_xattrs(object));
  CACHESHIM_CHECK(sys::set_mode(object, base_.access().mode()));
  base_.restrict(object);
  return {};
}

// Call after an attempt to rename or link a file to `path`; `named` is the result. If the name exists, makes it visible
// to the job: it is the job's own file or, after EEXIST, a file that other processes may have locked.
Status LockRenames::settle_arrival(const std::string& path, const Status& named) {
  if (named || named.failed_with(EEXIST)) hidden_.show(path);
  return named;
}

Status LockRenames::rename(const std::string& from, const std::string& to, unsigned flags) {
  if (entries_.is_lock(from) != entries_.is_lock(to)) return Errno(EXDEV);
  CACHESHIM_TRY(source, base_.open_parent(from));
  CACHESHIM_TRY(target, base_.ensure_parent(to));
  CACHESHIM_CHECK(
      rename_with(source.get(), std::string(base_name(from)), target.get(), to, flags));
  hidden_.show(to);
  return {};
}

Status LockRenames::link(const std::string& path, const std::string& new_path) {
  if (!entries_.is_lock(path) || !entries_.is_lock(new_path)) return Errno(EXDEV);
  CACHESHIM_TRY(source, base_.open_parent(path));
  CACHESHIM_TRY(target, base_.ensure_parent(new_path));
  CACHESHIM_CHECK(sys::link_at(source.get(), std::string(base_name(path)), target.get(),
                               std::string(base_name(new_path))));
  hidden_.show(new_path);
  return {};
}

Result<UniqueFd> LockRenames::rename_in(int directory, const std::string& name,
                                        const std::string& path, unsigned flags) {
  CACHESHIM_TRY(object, sys::open_beneath(directory, name, O_PATH | O_NOFOLLOW));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  CACHESHIM_CHECK(check_becomes_lock(st, path));
  CACHESHIM_TRY(parent, base_.ensure_parent(path));
  Status renamed = (flags & RENAME_NOREPLACE) != 0 ? check_free(parent.get(), path) : Status();
  if (renamed) CACHESHIM_CHECK(prepare_arrival(object.get()));
  if (renamed) renamed = rename_with(directory, name, parent.get(), path, flags);
  if (renamed.failed_with(EXDEV)) {
    auto copied = copy_in(directory, name, path, flags);
    renamed = copied ? sys::unlink_at(directory, name) : copied.error();
    if (copied) object = *std::move(copied);
  }
  CACHESHIM_CHECK(settle_arrival(path, renamed));
  return object;
}

// Copies a file from another file system into the base under the name `path`.
Result<UniqueFd> LockRenames::copy_in(int directory, const std::string& name,
                                      const std::string& path, unsigned flags) const {
  static std::atomic<std::uint64_t> next{0};
  const std::string staged = fmt::format("lock-{}", next++);
  auto copied = [&]() -> Result<UniqueFd> {
    CACHESHIM_TRY(source, sys::open_beneath(directory, name, O_RDONLY | O_NOFOLLOW));
    CACHESHIM_TRY(target,
                  sys::open_beneath(base_.staging(), staged, O_RDWR | O_CREAT | O_EXCL, 0600));
    CACHESHIM_CHECK(copy_file(source.get(), target.get(), {.is_for_base = true}));
    CACHESHIM_CHECK(prepare_arrival(target.get()));
    CACHESHIM_TRY(parent, base_.open_parent(path));
    CACHESHIM_CHECK(rename_with(base_.staging(), staged, parent.get(), path, flags));
    return sys::reopen(target.get(), O_PATH);
  }();
  if (!copied)
    // If this fails, the next daemon removes the file.
    (void)sys::unlink_at(base_.staging(), staged);
  return copied;
}

Status LockRenames::link_in(int object, const std::string& path) {
  CACHESHIM_TRY(st, sys::stat_fd(object));
  CACHESHIM_CHECK(check_becomes_lock(st, path));
  CACHESHIM_TRY(parent, base_.ensure_parent(path));
  CACHESHIM_TRY(directory, sys::stat_fd(parent.get()));
  if (directory.st_dev != st.st_dev) return Errno(EXDEV);
  Status linked = check_free(parent.get(), path);
  if (linked) CACHESHIM_CHECK(prepare_arrival(object));
  if (linked) linked = sys::link_fd(object, parent.get(), std::string(base_name(path)));
  return settle_arrival(path, linked);
}

Status LockRenames::rename_out(const std::string& path, int directory,
                               const std::string& name) const {
  if (!entries_.is_lock(path)) return Errno(EXDEV);
  CACHESHIM_TRY(parent, base_.open_parent(path));
  return sys::rename_at(parent.get(), std::string(base_name(path)), directory, name);
}

Status LockRenames::link_out(const std::string& path, int directory,
                             const std::string& name) const {
  if (!entries_.is_lock(path)) return Errno(EXDEV);
  CACHESHIM_TRY(parent, base_.open_parent(path));
  return sys::link_at(parent.get(), std::string(base_name(path)), directory, name);
}

}  // namespace cacheshim
