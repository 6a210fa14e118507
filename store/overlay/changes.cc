// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/changes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "store/overlay/common_names.h"
#include "store/overlay/copy_up.h"
#include "store/overlay/layer_names.h"
#include "store/sys/rename_flags.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim::changes {
namespace {

// Whether the owner of a directory with this mode lacks read or search permission. If so, the lowers' objects below the
// directory are inaccessible as well.
bool is_closed_directory(mode_t mode) { return (mode & 0500) != 0500; }

// Whether the object can be removed or renamed with the mutex held shared.
bool is_own_file(const Overlay& overlay, const std::string& path, const Located& found)
    REQUIRES_SHARED(overlay.mutex()) {
  return found.where == Where::kUpper && !S_ISDIR(found.st.st_mode) && makes_shared(overlay, path);
}

// Removes a directory that only the layer has and that contains no markers. rmdir(2) itself checks
// that the directory is empty. Returns false for other objects, and if rmdir(2) fails.
bool try_remove_own_dir(Overlay& overlay, const std::string& path)
    REQUIRES_SHARED(overlay.mutex()) {
  if (!overlay.state.index.has_directory(path) || overlay.state.index.is_opaque(path) ||
      overlay.state.index.has_whiteouts_in(path)) {
    return false;
  }
  if (!overlay.find_in_base(path).failed_with(ENOENT)) return false;
  const auto unlink = [&]() REQUIRES_SHARED(overlay.state.mutex) {
    return overlay.state.upper_paths->unlink(path, AT_REMOVEDIR);
  };
  if (!remove_last_name(overlay, path, unlink)) return false;
  overlay.state.index.erase_tree(path);
  return true;
}

Status move_onto(Overlay& overlay, const std::string& from, const std::string& to)
    REQUIRES_SHARED(overlay.mutex()) {
  Status renamed = overlay.state.upper_paths->rename(from, to);
  if (!renamed.failed_with(ENOTEMPTY) && !renamed.failed_with(EEXIST)) return renamed;
  // The target is empty in the merged view but contains whiteouts in the layer.
  CACHESHIM_TRY(old_parent, open_upper_parent(overlay, from));
  CACHESHIM_TRY(new_parent, open_upper_parent(overlay, to));
  const std::string staged = overlay.state.staged.new_name();
  CACHESHIM_CHECK(sys::displace_at({old_parent.get(), std::string(base_name(from))},
                                   {new_parent.get(), std::string(base_name(to))},
                                   {overlay.state.work->get(), staged}));
  (void)sys::remove_tree(overlay.state.work->get(),
                         staged);  // if this fails, the next daemon removes it
  return {};
}

// `replaces`: the view shows an object at `to`.
Status move(Overlay& overlay, const std::string& from, const std::string& to, bool is_dir,
            bool replaces) REQUIRES_SHARED(overlay.mutex()) {
  CACHESHIM_CHECK(ensure_directory(overlay, std::string(parent_path(to))));
  const auto rename = [&]() REQUIRES_SHARED(overlay.state.mutex) {
    return move_onto(overlay, from, to);
  };
  const Status moved = replaces ? remove_last_name(overlay, to, rename) : rename();
  if (!moved || !is_dir) return moved;
  overlay.state.index.erase_tree(to);
  overlay.state.index.move_tree(from, to);
  return {};
}

// Returns ENAMETOOLONG if a rename of the layer's directory `from` to `to` would give a directory
// below it a path of more than kMostPathBytes. Files are not in the index, so their paths may exceed
// the bound by one name.
Status check_depth(const Overlay& overlay, const std::string& from, const std::string& to)
    REQUIRES_SHARED(overlay.mutex()) {
  if (to.size() <= from.size()) return {};
  const std::size_t below = overlay.state.index.longest_below(from);
  return to.size() + 1 + below > kMostPathBytes ? Status(Errno(ENAMETOOLONG)) : Status();
}

Status exchange(Overlay& overlay, const std::string& from, const std::string& to)
    REQUIRES_SHARED(overlay.mutex()) {
  for (const std::string& path : {from, to}) {
    CACHESHIM_TRY(found, overlay.find(path));
    CACHESHIM_CHECK(S_ISDIR(found.st.st_mode) ? copy_up_tree(overlay, path)
                                              : copy_up(overlay, path));
  }
  CACHESHIM_CHECK(check_depth(overlay, from, to));
  CACHESHIM_CHECK(check_depth(overlay, to, from));
  CACHESHIM_CHECK(overlay.state.upper_paths->rename(from, to, RENAME_EXCHANGE));
  overlay.state.index.exchange_trees(from, to);
  return {};
}

}  // namespace

// Returns false if LinkIndex is not empty, because its records may only be changed with the mutex
// held exclusively.
bool makes_shared(const Overlay& overlay, const std::string& path) {
  return overlay.state.upper && overlay.state.links.is_empty() &&
         overlay.state.index.has_directory(parent_path(path));
}

Result<UniqueFd> create_file(Overlay& overlay, const std::string& path, int flags,
                             const NewObject& wanted) {
  if (overlay.state.locks.files.is_shared_name(path)) {
    CACHESHIM_TRY(made, create_lock(overlay, path, flags | O_EXCL));
    return std::move(made.fd);
  }
  CACHESHIM_CHECK(prepare_new_name(overlay, path));
  overlay.state.shadow(path, true);
  begin_entry(overlay, path);
  CACHESHIM_TRY(fd, overlay.state.upper_paths->at(path, [&](int dir, const std::string& name) {
    return make_file_as(dir, name, flags, wanted);
  }));
  remove_whiteout(overlay, path);
  return fd;
}

// If the job has removed a directory of the base with this name, the new directory must not merge with
// the base's directory. The whiteout prevents this until the opaque marker exists. The new directory is not
// staged in the work directory, so that it inherits group and ACL from its parent.
Status make_dir(Overlay& overlay, const std::string& path, const NewObject& wanted) {
  CACHESHIM_CHECK(prepare_new_name(overlay, path));
  overlay.state.shadow(path, is_closed_directory(wanted.mode));
  CACHESHIM_CHECK(overlay.state.upper_paths->at(
      path, [&](int dir, const std::string& name) { return make_dir_as(dir, name, wanted); }));
  overlay.state.index.add_directory(path);
  if (!overlay.state.index.has_whiteout(path)) return {};
  if (const Status marked = mark_opaque(overlay, path); !marked) {
    (void)remove_upper_dir(overlay, path);  // the caller gets the first error
    return marked;
  }
  remove_whiteout(overlay, path);
  return {};
}

Status make_node(Overlay& overlay, const std::string& path, const NewObject& wanted) {
  // A character device 0:0 would hide this name if the layer became a lower of an overlayfs.
  // overlayfs itself also refuses to create one.
  if (is_device_whiteout(wanted.mode, wanted.device)) return Errno(EPERM);
  if (S_ISREG(wanted.mode) && overlay.state.locks.files.is_shared_name(path)) {
    CACHESHIM_TRY(made, create_lock(overlay, path, O_RDONLY | O_EXCL));
    return {};
  }
  CACHESHIM_CHECK(prepare_new_name(overlay, path));
  overlay.state.shadow(path, true);
  if (S_ISREG(wanted.mode)) begin_entry(overlay, path);
  CACHESHIM_CHECK(overlay.state.upper_paths->at(
      path, [&](int dir, const std::string& name) { return make_node_as(dir, name, wanted); }));
  remove_whiteout(overlay, path);
  return {};
}

Status make_symlink(Overlay& overlay, const std::string& path, const std::string& target,
                    const NewObject& wanted) {
  CACHESHIM_CHECK(prepare_new_name(overlay, path));
  overlay.state.shadow(path, true);
  begin_entry(overlay, path);
  CACHESHIM_CHECK(overlay.state.upper_paths->at(path, [&](int dir, const std::string& name) {
    return make_symlink_as(target, dir, name, wanted);
  }));
  remove_whiteout(overlay, path);
  return {};
}

Status link(Overlay& overlay, const std::string& path, const std::string& new_path) {
  if (is_shared_lock(overlay, path) || overlay.state.locks.files.is_shared_name(new_path))
    return link_common(overlay, path, new_path);
  CACHESHIM_CHECK(prepare_new_name(overlay, new_path));
  CACHESHIM_CHECK(copy_up(overlay, path));
  overlay.state.shadow(new_path, true);
  begin_entry(overlay, new_path);
  CACHESHIM_CHECK(overlay.state.upper_paths->link(path, new_path));
  remove_whiteout(overlay, new_path);
  return {};
}

// Creates the file in the directory itself, so that it inherits the directory's group and ACL.
Result<UniqueFd> make_tmpfile(Overlay& overlay, const std::string& dir, int flags,
                              const NewObject& wanted) {
  CACHESHIM_TRY(directory, ensure_upper_dir(overlay, dir));
  CACHESHIM_CHECK(overlay.state.grow(0, 1));
  return make_tmpfile_as(directory.get(), flags, wanted);
}

// Uses a descriptor on the layer's own mount, not on PathRoot's private copy of the mount: the object was
// opened on the layer's mount, and link(2) fails between two mounts.
Status link_object(Overlay& overlay, int fd, const std::string& new_path) {
  if (overlay.state.locks.files.is_shared_name(new_path))
    return link_into_base(overlay, fd, new_path);
  CACHESHIM_CHECK(prepare_new_name(overlay, new_path));
  CACHESHIM_TRY(parent, open_upper_parent(overlay, new_path));
  overlay.state.shadow(new_path, true);
  begin_entry(overlay, new_path);
  CACHESHIM_CHECK(sys::link_fd(fd, parent.get(), std::string(base_name(new_path))));
  remove_whiteout(overlay, new_path);
  return {};
}

Status remove_file(Overlay& overlay, const std::string& path, Hold hold) {
  CACHESHIM_TRY(found, overlay.locate(path));
  if (S_ISDIR(found.st.st_mode)) return Errno(EISDIR);
  if (found.where == Where::kLock) return overlay.state.locks.files.remove(path);
  if (hold == Hold::kShared && !is_own_file(overlay, path, found)) return Errno(kNeedsExclusive);
  if (overlay.find_in_base(path)) {
    CACHESHIM_CHECK(hide_in_base(overlay, path, found));
    CACHESHIM_CHECK(add_whiteout(overlay, path));
  }
  return found.where == Where::kUpper ? remove_upper_file(overlay, path) : Status();
}

Status remove_dir(Overlay& overlay, const std::string& path, Hold hold) {
  const bool can_share = makes_shared(overlay, path) && overlay.state.index.has_directory(path);
  if (hold == Hold::kShared && !can_share) return Errno(kNeedsExclusive);
  if (overlay.state.upper && try_remove_own_dir(overlay, path)) return {};
  CACHESHIM_TRY(found, overlay.find(path));
  if (!S_ISDIR(found.st.st_mode)) return Errno(ENOTDIR);
  CACHESHIM_TRY(entries, overlay.list(path));
  if (!entries.empty()) return Errno(ENOTEMPTY);
  if (overlay.find_in_base(path)) CACHESHIM_CHECK(add_whiteout(overlay, path));
  return found.in_upper ? remove_upper_dir(overlay, path) : Status();
}

Status rename(Overlay& overlay, const std::string& from, const std::string& to, unsigned flags,
              Hold hold, UniqueFd* new_lock) {
  if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE) return Errno(EINVAL);
  CACHESHIM_TRY(source, overlay.locate(from));
  const Result<Located> target = overlay.locate(to);
  const bool is_common = source.where == Where::kLock || becomes_common(overlay, source, to) ||
                         (target && target->where == Where::kLock);
  if (is_common && hold == Hold::kShared) return Errno(kNeedsExclusive);
  if (is_common) return rename_common(overlay, from, source, to, target, flags, new_lock);
  const bool can_share = flags != RENAME_EXCHANGE && is_own_file(overlay, from, source) &&
                         (target ? is_own_file(overlay, to, *target) : makes_shared(overlay, to));
  if (hold == Hold::kShared && !can_share) return Errno(kNeedsExclusive);
  CACHESHIM_CHECK(check_rename_target(overlay, source, to, target, flags));
  if (from == to || (target && are_one_file(source.st, target->st))) return {};
  overlay.state.shadow(from, true);
  overlay.state.shadow(to, true);
  if (flags == RENAME_EXCHANGE) return exchange(overlay, from, to);
  const bool is_dir = S_ISDIR(source.st.st_mode);
  CACHESHIM_CHECK(is_dir ? copy_up_tree(overlay, from)
                         : copy_up_found(overlay, from, source, kWholeFile));
  if (is_dir) CACHESHIM_CHECK(check_depth(overlay, from, to));
  const bool base_has_source = static_cast<bool>(overlay.find_in_base(from));
  if (target) CACHESHIM_CHECK(hide_in_base(overlay, to, *target));
  if (!is_dir) begin_entry(overlay, to);
  CACHESHIM_CHECK(move(overlay, from, to, is_dir, /*replaces=*/static_cast<bool>(target)));
  if (target) forget_link_if_gone(overlay, target->st);
  if (base_has_source) CACHESHIM_CHECK(add_whiteout(overlay, from));
  remove_whiteout(overlay, to);
  return {};
}

}  // namespace cacheshim::changes
