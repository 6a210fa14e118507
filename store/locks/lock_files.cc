// SPDX-License-Identifier: Apache-2.0
#include "store/locks/lock_files.h"

#include <dirent.h>
#include <fcntl.h>

#include <limits>
#include <utility>

#include "store/sys/paths.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

constexpr int kMostOpenTries = 1000;  // other processes may create and remove the file in between
constexpr mode_t kSharedMode = 0644;  // outside the mount, only the service account may write

}  // namespace

Result<LockFiles::Object> LockFiles::find(const std::string& path) const {
  if (hidden_.contains(path)) return Errno(ENOENT);
  CACHESHIM_TRY(object, base_.open(path, O_PATH | O_NOFOLLOW));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  if (!S_ISREG(st.st_mode)) return Errno(EISDIR);
  return Object{std::move(object), st};
}

Result<UniqueFd> LockFiles::open(const std::string& path, int flags) const {
  if (hidden_.contains(path)) return Errno(ENOENT);
  const int safe_flags = (flags & O_PATH) != 0 ? flags : flags | O_NONBLOCK;
  auto file = base_.open(path, safe_flags | O_NOFOLLOW);
  const bool is_to_be_locked = file && (flags & O_PATH) == 0 && entries_.is_lock(path);
  if (is_to_be_locked) base_.access().apply(file->get());
  return file;
}

// Tries O_EXCL first, and then opens the existing file, because open(2) with O_CREAT alone would
// not tell whether the file is new. Repeats both if another process removes the file in between.
Result<LockFiles::Made> LockFiles::create(const std::string& path, int flags) {
  const int plain_flags = flags & ~(O_CREAT | O_EXCL);
  if (hidden_.contains(path)) {
    hidden_.show(path);
    auto again = open(path, plain_flags);
    if (again) return Made{*std::move(again), true};
    if (!again.failed_with(ENOENT)) return again.error();
  }
  const bool is_lock = entries_.is_lock(path);
  const mode_t mode = is_lock ? base_.access().mode() : kSharedMode;
  for (int tries = 0; tries < kMostOpenTries; ++tries) {
    CACHESHIM_CHECK(base_.ensure_directory(std::string(parent_path(path))));
    auto made = base_.open(path, plain_flags | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (made) {
      // Undoes the effect of the umask.
      CACHESHIM_CHECK(sys::set_mode(made->get(), mode));
      if (is_lock) base_.access().apply(made->get());
      return Made{*std::move(made), true};
    }
    if (!made.failed_with(EEXIST) || (flags & O_EXCL) != 0) return made.error();
    auto there = open(path, plain_flags);
    if (there) return Made{*std::move(there), false};
    if (!there.failed_with(ENOENT)) return there.error();
  }
  return Errno(EEXIST);
}

off_t LockFiles::most_bytes(std::string_view path) const {
  return entries_.is_lock(path) ? kMostLockBytes : std::numeric_limits<off_t>::max();
}

Status LockFiles::remove(const std::string& path) const {
  CACHESHIM_TRY(parent, base_.open_parent(path));
  return sys::unlink_at(parent.get(), std::string(base_name(path)));
}

Status LockFiles::replace(const std::string& path, int directory, const std::string& name) const {
  CACHESHIM_TRY(parent, base_.open_parent(path));
  return sys::rename_at(directory, name, parent.get(), std::string(base_name(path)));
}

void LockFiles::adjust(const std::string& directory, bool base_is_hidden,
                       std::vector<sys::DirEntry>& listed) const {
  if (!base_.is_shared() || !entries_.has_common(directory)) return;
  if (hidden_.has_any()) {
    std::erase_if(listed, [&](const sys::DirEntry& entry) {
      const std::string path = join_path(directory, entry.name);
      return hidden_.contains(path) && entries_.is_common(path);
    });
  }
  if (!base_is_hidden) return;
  const auto in_base = base_.open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!in_base) return;
  auto below = sys::read_dir(in_base->get());
  if (!below) return;
  for (sys::DirEntry& entry : *below) {
    const std::string path = join_path(directory, entry.name);
    if (entry.type != DT_REG || is_reserved_name(entry.name)) continue;
    if (entries_.is_common(path) && !hidden_.contains(path)) listed.push_back(std::move(entry));
  }
}

}  // namespace cacheshim
