// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "store/overlay/overlay.h"
#include "store/sys/keep_times.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

// Changes: creating and removing names, whiteouts and opaque directories.
//
// The order of steps keeps the merged view right at every time and after a crash: a whiteout is
// written before the name it hides leaves the layer; and a new name is in the layer, which takes
// precedence over the base, before the whiteout of its predecessor is removed.
namespace cacheshim {
namespace {

constexpr mode_t kMarkerMode = 0600;

Status make_marker(int dir, const std::string& name) {
  const Status made = sys::make_node_at(dir, name, S_IFREG | kMarkerMode, 0);
  if (made || made.failed_with(EEXIST)) return {};
  // Some file systems create files only by open(2).
  CACHESHIM_TRY(fd, sys::open_beneath(dir, name, O_WRONLY | O_CREAT, kMarkerMode));
  return {};
}

// Its own user cannot enter it: what the lowers have below is inaccessible as well.
bool is_closed_directory(mode_t mode) { return (mode & 0500) != 0500; }

std::string marker_in(std::string_view directory) { return join_path(directory, kOpaqueMarker); }

std::string whiteout_of(const std::string& path) {
  return join_path(parent_path(path), whiteout_name(base_name(path)));
}

}  // namespace

// Not if there are hard links of base files: their records do not support it.
bool Overlay::makes_shared(const std::string& path) const {
  return upper_ && links_.is_empty() && index_.has_directory(parent_path(path));
}

// Whether it can be removed or renamed with the mutex held shared.
bool Overlay::is_own_file(const std::string& path, const Located& found) const {
  return found.where == Where::kUpper && !S_ISDIR(found.st.st_mode) && makes_shared(path);
}

// If the layer itself has an object at `path`, the change finds it and returns EEXIST.
Status Overlay::prepare_new_name(const std::string& path) {
  CACHESHIM_CHECK(check_name(path));
  const Result<struct stat> below = find_in_base(path);
  if (below) return Errno(EEXIST);
  if (!below.failed_with(ENOENT)) {
    // the layer's own object takes precedence over an error below
    const Result<Found> found = find(path);
    return found ? Errno(EEXIST) : found.error();
  }
  return ensure_directory(std::string(parent_path(path)));
}

Result<LockFiles::Made> Overlay::create_lock(const std::string& path, int flags) {
  CACHESHIM_CHECK(check_name(path));
  const Result<Located> there = locate_lock(path);
  if (there && (there->where != Where::kLock || (flags & O_EXCL) != 0)) return Errno(EEXIST);
  CACHESHIM_CHECK(check_lock_directory(path));
  return locks_.create(path, flags);
}

Result<UniqueFd> Overlay::create_file(const std::string& path, int flags, const NewObject& wanted) {
  if (locks_.is_shared_name(path)) {
    CACHESHIM_TRY(made, create_lock(path, flags | O_EXCL));
    return std::move(made.fd);
  }
  CACHESHIM_CHECK(prepare_new_name(path));
  shadow(path, true);
  begin_entry(path);
  CACHESHIM_TRY(fd, upper_paths_->at(path, [&](int dir, const std::string& name) {
    return make_file_as(dir, name, flags, wanted);
  }));
  remove_whiteout(path);
  return fd;
}

// The base may have a removed directory of this name: the new one must not merge with it. The
// whiteout ensures that until the marker exists. It is not staged elsewhere, so that it inherits
// group and ACL from the right directory.
Status Overlay::make_dir(const std::string& path, const NewObject& wanted) {
  CACHESHIM_CHECK(prepare_new_name(path));
  shadow(path, is_closed_directory(wanted.mode));
  CACHESHIM_CHECK(upper_paths_->at(
      path, [&](int dir, const std::string& name) { return make_dir_as(dir, name, wanted); }));
  index_.add_directory(path);
  if (!index_.has_whiteout(path)) return {};
  if (const Status marked = mark_opaque(path); !marked) {
    (void)remove_upper_dir(path);  // the first error is returned
    return marked;
  }
  remove_whiteout(path);
  return {};
}

Status Overlay::make_node(const std::string& path, const NewObject& wanted) {
  // It would hide this name in further lowers if the layer became a lower itself. overlayfs also
  // refuses it.
  if (is_device_whiteout(wanted.mode, wanted.device)) return Errno(EPERM);
  if (S_ISREG(wanted.mode) && locks_.is_shared_name(path)) {
    CACHESHIM_TRY(made, create_lock(path, O_RDONLY | O_EXCL));
    return {};
  }
  CACHESHIM_CHECK(prepare_new_name(path));
  shadow(path, true);
  if (S_ISREG(wanted.mode)) begin_entry(path);
  CACHESHIM_CHECK(upper_paths_->at(
      path, [&](int dir, const std::string& name) { return make_node_as(dir, name, wanted); }));
  remove_whiteout(path);
  return {};
}

Status Overlay::make_symlink(const std::string& path, const std::string& target,
                             const NewObject& wanted) {
  CACHESHIM_CHECK(prepare_new_name(path));
  shadow(path, true);
  begin_entry(path);
  CACHESHIM_CHECK(upper_paths_->at(path, [&](int dir, const std::string& name) {
    return make_symlink_as(target, dir, name, wanted);
  }));
  remove_whiteout(path);
  return {};
}

Status Overlay::link(const std::string& path, const std::string& new_path) {
  if (is_shared_lock(path) || locks_.is_shared_name(new_path)) return link_common(path, new_path);
  CACHESHIM_CHECK(prepare_new_name(new_path));
  CACHESHIM_CHECK(copy_up(path));
  shadow(new_path, true);
  begin_entry(new_path);
  CACHESHIM_CHECK(upper_paths_->link(path, new_path));
  remove_whiteout(new_path);
  return {};
}

// In the directory itself, so that the file inherits its group and ACL.
Result<UniqueFd> Overlay::make_tmpfile(const std::string& dir, int flags, const NewObject& wanted) {
  CACHESHIM_TRY(directory, ensure_upper_dir(dir));
  return make_tmpfile_as(directory.get(), flags, wanted);
}

// Uses a descriptor of the layer's own mount, on which the object was opened.
Status Overlay::link_object(int fd, const std::string& new_path) {
  if (locks_.is_shared_name(new_path)) return link_into_base(fd, new_path);
  CACHESHIM_CHECK(prepare_new_name(new_path));
  CACHESHIM_TRY(parent, open_upper_parent(new_path));
  shadow(new_path, true);
  begin_entry(new_path);
  CACHESHIM_CHECK(sys::link_fd(fd, parent.get(), std::string(base_name(new_path))));
  remove_whiteout(new_path);
  return {};
}

Status Overlay::remove_file(const std::string& path, Hold hold) {
  CACHESHIM_TRY(found, locate(path));
  if (S_ISDIR(found.st.st_mode)) return Errno(EISDIR);
  if (found.where == Where::kLock) return locks_.remove(path);
  if (hold == Hold::kShared && !is_own_file(path, found)) return Errno(kNeedsExclusive);
  if (find_in_base(path)) {
    CACHESHIM_CHECK(hide_in_base(path, found));
    CACHESHIM_CHECK(add_whiteout(path));
  }
  return found.where == Where::kUpper ? remove_upper_file(path) : Status();
}

// Removes an object of the layer by `remove`; `path` may be its last name. The record of its origin
// is removed first, because a new object may get its inode number at once.
Status Overlay::remove_last_name(const std::string& path, const std::function<Status()>& remove) {
  if (origins_.is_empty()) return remove();
  const auto st = upper_paths_->stat(path);
  const bool is_last = st && (S_ISDIR(st->st_mode) || st->st_nlink == 1);
  const auto record = is_last ? origins_.remove(st->st_ino) : std::nullopt;
  Status removed = remove();
  if (!removed && record) origins_.put_back(st->st_ino, *record);
  return removed;
}

// The same for a copy with several names of the base.
void Overlay::forget_link_if_gone(const struct stat& st) {
  if (links_.forget_if_gone(st.st_dev, st.st_ino)) (void)origins_.remove(st.st_ino);
}

// For a directory without markers that only the layer has: rmdir(2) itself tells whether it is
// empty. Returns false if that is unknown, or not done.
bool Overlay::try_remove_own_dir(const std::string& path) {
  if (!index_.has_directory(path) || index_.is_opaque(path) || index_.has_whiteouts_in(path)) {
    return false;
  }
  if (!find_in_base(path).failed_with(ENOENT)) return false;
  const auto unlink = [&]() REQUIRES_SHARED(mutex_) {
    return upper_paths_->unlink(path, AT_REMOVEDIR);
  };
  if (!remove_last_name(path, unlink)) return false;
  index_.erase_tree(path);
  return true;
}

Status Overlay::remove_dir(const std::string& path, Hold hold) {
  const bool can_share = makes_shared(path) && index_.has_directory(path);
  if (hold == Hold::kShared && !can_share) return Errno(kNeedsExclusive);
  if (upper_ && try_remove_own_dir(path)) return {};
  CACHESHIM_TRY(found, find(path));
  if (!S_ISDIR(found.st.st_mode)) return Errno(ENOTDIR);
  CACHESHIM_TRY(entries, list(path));
  if (!entries.empty()) return Errno(ENOTEMPTY);
  if (find_in_base(path)) CACHESHIM_CHECK(add_whiteout(path));
  return found.in_upper ? remove_upper_dir(path) : Status();
}

Status Overlay::remove_upper_dir(const std::string& path) {
  Status removed = remove_last_name(path, [&]() REQUIRES_SHARED(mutex_) -> Status {
    Status unlinked = upper_paths_->unlink(path, AT_REMOVEDIR);
    if (!unlinked.failed_with(ENOTEMPTY)) return unlinked;  // whiteouts and the opaque marker
    CACHESHIM_TRY(parent, open_upper_parent(path));
    const std::string staged = staged_.new_name();
    CACHESHIM_CHECK(
        sys::rename_at(parent.get(), std::string(base_name(path)), work_->get(), staged));
    return sys::remove_tree(work_->get(), staged);
  });
  if (removed) index_.erase_tree(path);
  return removed;
}

Status Overlay::remove_upper_file(const std::string& path) {
  const auto unlink = [&]() REQUIRES_SHARED(mutex_) { return upper_paths_->unlink(path); };
  if (links_.is_empty()) return remove_last_name(path, unlink);
  const auto st = upper_paths_->stat(path);
  CACHESHIM_CHECK(remove_last_name(path, unlink));
  if (st && st->st_nlink == 2) forget_link_if_gone(*st);
  return {};
}

// The base's file may be the same object: it is not a copy any more.
Status Overlay::drop_file(const std::string& path) {
  const auto st = origins_.is_empty() ? Errno(ENOENT) : upper_paths_->stat(path);
  if (st) (void)origins_.remove(st->st_ino);
  return remove_upper_file(path);
}

// The base's name at `path`, where the view shows `found`, is about to be hidden.
Status Overlay::hide_in_base(const std::string& path, const Located& found) {
  if (found.where == Where::kUpper || !S_ISREG(found.st.st_mode)) return {};
  if (found.where == Where::kLowers && found.st.st_nlink < 2 && found.key.empty()) return {};
  CACHESHIM_TRY(key, link_key(path));
  shadow("", true);  // any name may belong to this file
  CACHESHIM_CHECK(links_.take_name(key, found.st.st_nlink));
  if (found.where == Where::kIndex) forget_link_if_gone(found.st);
  return {};
}

Status Overlay::clear_opaque(const std::string& path) {
  if (!index_.is_opaque(path)) return {};
  CACHESHIM_CHECK(upper_paths_->unlink(marker_in(path)));
  index_.remove_opaque(path);
  return {};
}

void Overlay::prune_empty_dirs(const std::string& path) {
  const auto directory = sys::open_beneath(upper_.get(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!directory) return;
  const auto entries = sys::list_dir(directory->get());
  if (!entries) return;
  for (const sys::DirEntry& entry : *entries) {
    if (entry.type == DT_DIR) prune_empty_dirs(join_path(path, entry.name));
  }
  // Only a directory that the base has as well: an empty one of the job's own belongs to the job.
  if (!path.empty() && !find_in_base(path)) return;
  // It stays if it has contents.
  const auto unlink = [&]() REQUIRES_SHARED(mutex_) {
    return upper_paths_->unlink(path, AT_REMOVEDIR);
  };
  if (remove_last_name(path, unlink)) index_.erase_tree(path);
}

void Overlay::begin_entry(const std::string& path) {
  const auto ref = entries_.find(path);
  if (!ref || !ref->rule->is_directory() || ref->rest.empty()) return;
  if (entries_.is_beside_entry(path)) return;
  const std::string entry(ref->entry);
  if (index_.is_opaque(entry) || base_has_part_of(entry)) return;
  // Without the marker the entry is merged like any other directory: worse, but not a reason to
  // fail.
  (void)mark_opaque(entry);
}

// Lock files alone do not make an entry: they may have been needed before it was begun.
bool Overlay::base_has_part_of(const std::string& entry) const {
  if (!find_in_base(entry)) return false;
  if (!entries_.has_common(entry)) return true;
  const auto names = lowers_->list(entry);
  return !names || std::any_of(names->begin(), names->end(), [&](const ListedEntry& name) {
    return !entries_.is_lock(join_path(entry, name.name));
  });
}

Status Overlay::mark_opaque(const std::string& path) {
  if (index_.is_opaque(path)) return {};
  shadow(path, true);
  CACHESHIM_CHECK(ensure_directory(path));
  CACHESHIM_CHECK(upper_paths_->at(marker_in(path), [](int dir, const std::string& marker) {
    const KeepTimes times(dir, std::string(parent_path(marker)));
    return make_marker(dir, marker);
  }));
  index_.add_opaque(path);
  return {};
}

Status Overlay::add_whiteout(const std::string& path) {
  shadow(path, true);
  CACHESHIM_CHECK(ensure_directory(std::string(parent_path(path))));
  CACHESHIM_CHECK(upper_paths_->at(whiteout_of(path), make_marker));
  index_.add_whiteout(path);
  return {};
}

void Overlay::remove_whiteout(const std::string& path) {
  if (!index_.has_whiteout(path)) return;
  // A leftover hides nothing: the layer's own name takes precedence over it.
  if (upper_paths_->unlink(whiteout_of(path))) index_.remove_whiteout(path);
}

}  // namespace cacheshim
