// SPDX-License-Identifier: Apache-2.0
#include "store/locks/lock_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "common/names.h"
#include "store/locks/lease_files.h"
#include "store/sys/copy_file.h"
#include "store/sys/paths.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

constexpr int kMostTries = 1000;  // for a file that others make and remove meanwhile
constexpr mode_t kSharedMode = 0644;  // beside the mount only the service account may write

}  // namespace

const LockAccess& LockFiles::open_to_all() {
  static const LockAccess kAccess{std::nullopt};
  return kAccess;
}

bool LockFiles::is_hidden(const std::string& path) const {
  if (!hides_some_) return false;
  const MutexLock lock(mutex_);
  return hidden_.contains(path);
}

void LockFiles::hide(const std::string& path) {
  const MutexLock lock(mutex_);
  hidden_.insert(path);
  hides_some_ = true;
}

void LockFiles::show(const std::string& path) {
  const MutexLock lock(mutex_);
  hidden_.erase(path);
  hides_some_ = !hidden_.empty();
}

std::vector<std::string> LockFiles::hidden_directories() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> directories;
  for (const std::string& path : hidden_) directories.emplace_back(parent_path(path));
  return directories;
}

Result<LockFiles::Object> LockFiles::find(const std::string& path) const {
  if (is_hidden(path)) return Errno(ENOENT);
  CACHESHIM_TRY(object, sys::open_beneath(base_, path, O_PATH | O_NOFOLLOW));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  if (!S_ISREG(st.st_mode)) return Errno(EISDIR);
  return Object{std::move(object), st};
}

Result<UniqueFd> LockFiles::open(const std::string& path, int flags) const {
  if (is_hidden(path)) return Errno(ENOENT);
  const int safe_flags = (flags & O_PATH) != 0 ? flags : flags | O_NONBLOCK;
  auto file = sys::open_beneath(base_, path, safe_flags | O_NOFOLLOW);
  const bool is_to_be_locked = file && (flags & O_PATH) == 0 && entries_.is_lock(path);
  if (is_to_be_locked) access_.load()->apply(file->get());
  return file;
}

Status LockFiles::ensure_directory(const std::string& path) const {
  if (path.empty() || sys::open_beneath(base_, path, O_PATH | O_DIRECTORY)) return {};
  const std::string above(parent_path(path));
  CACHESHIM_CHECK(ensure_directory(above));
  CACHESHIM_TRY(parent, sys::open_beneath(base_, above, O_RDONLY | O_DIRECTORY));
  const Status made = sys::make_dir_at(parent.get(), std::string(base_name(path)), 0755);
  return made.failed_with(EEXIST) ? Status() : made;
}

// The file system's open(O_CREAT) creates or opens a file in one step. This function needs two
// steps, because the caller must learn which one it was. Another process may remove the file in
// between.
Result<LockFiles::Made> LockFiles::create(const std::string& path, int flags) {
  const int plain_flags = flags & ~(O_CREAT | O_EXCL);
  if (is_hidden(path)) {
    show(path);
    auto again = open(path, plain_flags);
    if (again) return Made{*std::move(again), true};
    if (!again.failed_with(ENOENT)) return again.error();
  }
  const bool is_lock = entries_.is_lock(path);
  const mode_t mode = is_lock ? access_.load()->mode() : kSharedMode;
  for (int tries = 0; tries < kMostTries; ++tries) {
    CACHESHIM_CHECK(ensure_directory(std::string(parent_path(path))));
    auto made = sys::open_beneath(base_, path, plain_flags | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (made) {
      // Undoes the effect of the umask.
      CACHESHIM_CHECK(sys::set_mode(made->get(), mode));
      if (is_lock) access_.load()->apply(made->get());
      return Made{*std::move(made), true};
    }
    if (!made.failed_with(EEXIST) || (flags & O_EXCL) != 0) return made.error();
    auto there = open(path, plain_flags);
    if (there) return Made{*std::move(there), false};
    if (!there.failed_with(ENOENT)) return there.error();
  }
  return Errno(EEXIST);
}

std::string LockFiles::place_of_named(const std::string& path) const {
  if (!row_of(entries_.class_of(path)).is_held_by_existing) return path;
  return join_path(join_path(kControlName, "leases"), lease_name(path));
}

Result<UniqueFd> LockFiles::open_named(const std::string& path) const {
  if (!may_become_lock(path)) return Errno(ENOENT);
  CACHESHIM_TRY(object, sys::open_beneath(base_, place_of_named(path), O_PATH | O_NOFOLLOW));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  if (!S_ISREG(st.st_mode)) return Errno(EISDIR);
  if (st.st_size > kMostLockBytes) return Errno(EFBIG);
  CACHESHIM_CHECK(sys::check_access(object.get(), R_OK | W_OK));
  return object;
}

Result<UniqueFd> LockFiles::ensure_named(const std::string& path) const {
  if (!may_become_lock(path)) return Errno(ENOENT);
  const auto restricted = [this](Result<UniqueFd> object) {
    if (object) restrict(object->get());
    return object;
  };
  if (auto known = open_named(path); !known.failed_with(ENOENT)) {
    return restricted(std::move(known));
  }
  const std::string place = place_of_named(path);
  CACHESHIM_CHECK(ensure_directory(std::string(parent_path(place))));
  // Read-only, because a close after writing would report a change to the watchers of the base.
  const int flags = O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  const mode_t mode = access_.load()->mode();
  const auto made = sys::open_beneath(base_, place, flags, mode);
  if (made) CACHESHIM_CHECK(sys::set_mode(made->get(), mode));  // undoes the umask
  if (!made && !made.failed_with(EEXIST)) return made.error();
  return restricted(open_named(path));
}

void LockFiles::restrict(int object) const {
  const auto file = sys::reopen(object, O_RDONLY | O_NONBLOCK);
  if (file) access_.load()->apply(file->get());
}

off_t LockFiles::most_bytes(std::string_view path) const {
  return entries_.is_lock(path) ? kMostLockBytes : std::numeric_limits<off_t>::max();
}

Result<UniqueFd> LockFiles::open_parent(const std::string& path) const {
  return sys::open_beneath(base_, parent_path(path), O_PATH | O_DIRECTORY);
}

Result<UniqueFd> LockFiles::ensure_parent(const std::string& path) const {
  CACHESHIM_CHECK(ensure_directory(std::string(parent_path(path))));
  return open_parent(path);
}

Status LockFiles::check_becomes_lock(const struct stat& st, const std::string& path) const {
  if (!entries_.is_lock(path)) return Errno(EXDEV);
  return st.st_size > kMostLockBytes ? Status(Errno(EFBIG)) : Status();
}

// Call after a rename or link of `object` to `path` with the result `named`. The job then sees the
// file of this name: `object`, or a file that exists already and that other processes may have
// locked.
Status LockFiles::settle_arrival(int object, const std::string& path, const Status& named) {
  if (named) restrict(object);
  if (named || named.failed_with(EEXIST)) show(path);
  return named;
}

Status LockFiles::rename(const std::string& from, const std::string& to, unsigned flags) {
  if (entries_.is_lock(from) != entries_.is_lock(to)) return Errno(EXDEV);
  CACHESHIM_TRY(source, open_parent(from));
  CACHESHIM_TRY(target, ensure_parent(to));
  CACHESHIM_CHECK(sys::rename_at(source.get(), std::string(base_name(from)), target.get(),
                                 std::string(base_name(to)), flags));
  show(to);
  return {};
}

Status LockFiles::link(const std::string& path, const std::string& new_path) {
  if (!entries_.is_lock(path) || !entries_.is_lock(new_path)) return Errno(EXDEV);
  CACHESHIM_TRY(source, open_parent(path));
  CACHESHIM_TRY(target, ensure_parent(new_path));
  CACHESHIM_CHECK(sys::link_at(source.get(), std::string(base_name(path)), target.get(),
                               std::string(base_name(new_path))));
  show(new_path);
  return {};
}

Result<UniqueFd> LockFiles::rename_in(int directory, const std::string& name,
                                      const std::string& path, unsigned flags) {
  CACHESHIM_TRY(object, sys::open_beneath(directory, name, O_PATH | O_NOFOLLOW));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  CACHESHIM_CHECK(check_becomes_lock(st, path));
  CACHESHIM_TRY(parent, ensure_parent(path));
  Status renamed =
      sys::rename_at(directory, name, parent.get(), std::string(base_name(path)), flags);
  if (renamed.failed_with(EXDEV)) {
    auto copied = copy_in(directory, name, path, flags);
    renamed = copied ? sys::unlink_at(directory, name) : copied.error();
    if (copied) object = *std::move(copied);
  }
  CACHESHIM_CHECK(settle_arrival(object.get(), path, renamed));
  return object;
}

// Copies a file from another file system into the base under the name `path`.
Result<UniqueFd> LockFiles::copy_in(int directory, const std::string& name, const std::string& path,
                                    unsigned flags) const {
  static std::atomic<std::uint64_t> next{0};
  const std::string staged = fmt::format("lock-{}", next++);
  auto copied = [&]() -> Result<UniqueFd> {
    CACHESHIM_TRY(source, sys::open_beneath(directory, name, O_RDONLY | O_NOFOLLOW));
    CACHESHIM_TRY(target, sys::open_beneath(staging_, staged, O_RDWR | O_CREAT | O_EXCL, 0600));
    CACHESHIM_CHECK(copy_file(source.get(), target.get()));
    CACHESHIM_TRY(parent, open_parent(path));
    CACHESHIM_CHECK(
        sys::rename_at(staging_, staged, parent.get(), std::string(base_name(path)), flags));
    return sys::reopen(target.get(), O_PATH);
  }();
  if (!copied) (void)sys::unlink_at(staging_, staged);  // if this fails, the next daemon removes it
  return copied;
}

Status LockFiles::link_in(int object, const std::string& path) {
  CACHESHIM_TRY(st, sys::stat_fd(object));
  CACHESHIM_CHECK(check_becomes_lock(st, path));
  CACHESHIM_TRY(parent, ensure_parent(path));
  return settle_arrival(object, path,
                        sys::link_fd(object, parent.get(), std::string(base_name(path))));
}

Status LockFiles::rename_out(const std::string& path, int directory,
                             const std::string& name) const {
  if (!entries_.is_lock(path)) return Errno(EXDEV);
  CACHESHIM_TRY(parent, open_parent(path));
  return sys::rename_at(parent.get(), std::string(base_name(path)), directory, name);
}

Status LockFiles::link_out(const std::string& path, int directory, const std::string& name) const {
  if (!entries_.is_lock(path)) return Errno(EXDEV);
  CACHESHIM_TRY(parent, open_parent(path));
  return sys::link_at(parent.get(), std::string(base_name(path)), directory, name);
}

Status LockFiles::remove(const std::string& path) const {
  CACHESHIM_TRY(parent, open_parent(path));
  return sys::unlink_at(parent.get(), std::string(base_name(path)));
}

Status LockFiles::replace(const std::string& path, int directory, const std::string& name) const {
  CACHESHIM_TRY(parent, open_parent(path));
  return sys::rename_at(directory, name, parent.get(), std::string(base_name(path)));
}

void LockFiles::adjust(const std::string& directory, bool base_is_hidden,
                       std::vector<sys::DirEntry>& listed) const {
  if (base_ < 0 || !entries_.has_common(directory)) return;
  if (hides_some_) {
    std::erase_if(listed, [&](const sys::DirEntry& entry) {
      const std::string path = join_path(directory, entry.name);
      return is_hidden(path) && entries_.is_common(path);
    });
  }
  if (!base_is_hidden) return;
  const auto base = sys::open_beneath(base_, directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!base) return;
  auto below = sys::read_dir(base->get());
  if (!below) return;
  for (sys::DirEntry& entry : *below) {
    const std::string path = join_path(directory, entry.name);
    if (entry.type != DT_REG || is_reserved_name(entry.name)) continue;
    if (entries_.is_common(path) && !is_hidden(path)) listed.push_back(std::move(entry));
  }
}

}  // namespace cacheshim
