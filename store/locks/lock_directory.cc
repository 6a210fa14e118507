// SPDX-License-Identifier: Apache-2.0
#include "store/locks/lock_directory.h"

#include <fcntl.h>

#include <optional>

#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {

const LockAccess& LockDirectory::open_to_all() {
  static const LockAccess kAccess{std::nullopt};
  return kAccess;
}

void LockDirectory::share(int base, const LockAccess* access, int staging) {
  if (access != nullptr) access_ = access;
  staging_ = staging;
  base_ = base;
}

void LockDirectory::restrict(int object) const {
  const auto file = sys::reopen(object, O_RDONLY | O_NONBLOCK);
  if (file) access().apply(file->get());
}

Result<UniqueFd> LockDirectory::open(std::string_view path, int flags, mode_t mode) const {
  return sys::open_beneath(base_, path, flags, mode);
}

Status LockDirectory::ensure_directory(const std::string& path) const {
  if (is_too_deep_for_base(path)) return Errno(ENAMETOOLONG);
  if (path.empty() || open(path, O_PATH | O_DIRECTORY)) return {};
  const std::string above(parent_path(path));
  CACHESHIM_CHECK(ensure_directory(above));
  CACHESHIM_TRY(parent, open(above, O_RDONLY | O_DIRECTORY));
  return sys::ensure_dir_at(parent.get(), std::string(base_name(path)), 0755);
}

Result<UniqueFd> LockDirectory::open_parent(const std::string& path) const {
  return open(parent_path(path), O_PATH | O_DIRECTORY);
}

Result<UniqueFd> LockDirectory::ensure_parent(const std::string& path) const {
  CACHESHIM_CHECK(ensure_directory(std::string(parent_path(path))));
  return open_parent(path);
}

}  // namespace cacheshim
