// SPDX-License-Identifier: Apache-2.0
#include "store/locks/named_lock_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "common/names.h"
#include "store/locks/lease_files.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {

std::string NamedLockFiles::place_of(const std::string& path) const {
  if (!row_of(entries_.class_of(path)).locks_by_existence) return path;
  return join_path(join_path(kControlName, "leases"), lease_name(path));
}

Result<UniqueFd> NamedLockFiles::open(const std::string& path) const {
  if (!may_become_lock(path)) return Errno(ENOENT);
  CACHESHIM_TRY(object, base_.open(place_of(path), O_PATH | O_NOFOLLOW));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  if (!S_ISREG(st.st_mode)) return Errno(EISDIR);
  if (st.st_size > kMostLockBytes) return Errno(EFBIG);
  CACHESHIM_CHECK(sys::check_access(object.get(), R_OK | W_OK));
  return object;
}

Result<LockFiles::Object> NamedLockFiles::find(const std::string& path) const {
  return files_.find(place_of(path));
}

Result<UniqueFd> NamedLockFiles::ensure(const std::string& path) const {
  if (!may_become_lock(path)) return Errno(ENOENT);
  const auto restricted = [this](Result<UniqueFd> object) {
    if (object) base_.restrict(object->get());
    return object;
  };
  if (auto known = open(path); !known.failed_with(ENOENT)) {
    return restricted(std::move(known));
  }
  const std::string place = place_of(path);
  CACHESHIM_CHECK(base_.ensure_directory(std::string(parent_path(place))));
  // Read-only, because closing a writable descriptor would report a change to the watchers of the
  // base.
  const int flags = O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  const mode_t mode = base_.access().mode();
  const auto made = base_.open(place, flags, mode);
  if (made) CACHESHIM_CHECK(sys::set_mode(made->get(), mode));  // undoes the umask
  if (!made && !made.failed_with(EEXIST)) return made.error();
  return restricted(open(path));
}

}  // namespace cacheshim
