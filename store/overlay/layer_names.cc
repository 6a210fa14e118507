// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/layer_names.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "store/overlay/copy_up.h"
#include "store/sys/keep_times.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

constexpr mode_t kMarkerMode = 0600;

Status make_marker(int dir, const std::string& name) {
  const Status made = sys::make_node_at(dir, name, S_IFREG | kMarkerMode, 0);
  if (made || made.failed_with(EEXIST)) return {};
  // On some file systems, mknod(2) cannot create regular files.
  CACHESHIM_TRY(fd, sys::open_beneath(dir, name, O_WRONLY | O_CREAT, kMarkerMode));
  return {};
}

std::string marker_in(std::string_view directory) { return join_path(directory, kOpaqueMarker); }

std::string whiteout_of(const std::string& path) {
  return join_path(parent_path(path), whiteout_name(base_name(path)));
}

// Whether the base has a part of the entry. Lock files do not count, because a process may create them before it begins
// the entry.
bool base_has_part_of(const Overlay& overlay, const std::string& entry)
    REQUIRES_SHARED(overlay.mutex()) {
  if (!overlay.find_in_base(entry)) return false;
  if (!overlay.state.entries.has_common(entry)) return true;
  const auto names = overlay.state.lowers->list(entry);
  return !names || std::any_of(names->begin(), names->end(), [&](const ListedEntry& name) {
    return !overlay.state.entries.is_lock(join_path(entry, name.name));
  });
}

struct OpaqueOptions {
  // Keep the directory's times; not needed if a new name in the directory will change them anyway.
  bool keep_times;
};

Status make_opaque(Overlay& overlay, const std::string& path, OpaqueOptions options)
    REQUIRES_SHARED(overlay.mutex()) {
  if (overlay.state.index.is_opaque(path)) return {};
  overlay.state.shadow(path, true);
  CACHESHIM_CHECK(ensure_directory(overlay, path));
  CACHESHIM_CHECK(
      overlay.state.upper_paths->at(marker_in(path), [&](int dir, const std::string& marker) {
        std::optional<KeepTimes> times;
        if (options.keep_times) times.emplace(dir, std::string(parent_path(marker)));
        return make_marker(dir, marker);
      }));
  overlay.state.index.add_opaque(path);
  return {};
}

}  // namespace

Status prepare_new_name(Overlay& overlay, const std::string& path) {
  CACHESHIM_CHECK(overlay.state.check_name(path));
  const Result<struct stat> below = overlay.find_in_base(path);
  if (below) return Errno(EEXIST);
  if (!below.failed_with(ENOENT)) {
    // an object of the layer takes precedence over an error of the base
    const Result<Found> found = overlay.find(path);
    return found ? Errno(EEXIST) : found.error();
  }
  CACHESHIM_CHECK(ensure_directory(overlay, std::string(parent_path(path))));
  return overlay.state.grow(0, 1);
}

void begin_entry(Overlay& overlay, const std::string& path) {
  const auto ref = overlay.state.entries.find(path);
  if (!ref || !ref->rule->is_directory() || ref->rest.empty()) return;
  if (overlay.state.entries.is_beside_entry(path)) return;
  const std::string entry(ref->entry);
  if (overlay.state.index.is_opaque(entry) || base_has_part_of(overlay, entry)) return;
  // Ignores errors: without the marker the entry is merged like any other directory.
  (void)make_opaque(overlay, entry, {.keep_times = parent_path(path) != entry});
}

Status mark_opaque(Overlay& overlay, const std::string& path) {
  return make_opaque(overlay, path, {.keep_times = true});
}

Status clear_opaque(Overlay& overlay, const std::string& path) {
  if (!overlay.state.index.is_opaque(path)) return {};
  CACHESHIM_CHECK(overlay.state.upper_paths->unlink(marker_in(path)));
  overlay.state.index.remove_opaque(path);
  return {};
}

Status add_whiteout(Overlay& overlay, const std::string& path) {
  overlay.state.shadow(path, true);
  CACHESHIM_CHECK(ensure_directory(overlay, std::string(parent_path(path))));
  CACHESHIM_CHECK(overlay.state.upper_paths->at(whiteout_of(path), make_marker));
  overlay.state.index.add_whiteout(path);
  return {};
}

void remove_whiteout(Overlay& overlay, const std::string& path) {
  if (!overlay.state.index.has_whiteout(path)) return;
  // If this fails, the whiteout hides nothing, because the layer's own name takes precedence over
  // it.
  if (overlay.state.upper_paths->unlink(whiteout_of(path)))
    overlay.state.index.remove_whiteout(path);
}

Status hide_in_base(Overlay& overlay, const std::string& path, const Located& found) {
  if (found.where == Where::kUpper || !S_ISREG(found.st.st_mode)) return {};
  if (found.where == Where::kLowers && found.st.st_nlink < 2 && found.key.empty()) return {};
  CACHESHIM_TRY(key, link_key(overlay, path));
  overlay.state.shadow("", true);  // any name may be a link to this file
  CACHESHIM_CHECK(overlay.state.links.take_name(key, found.st.st_nlink));
  if (found.where == Where::kIndex) forget_link_if_gone(overlay, found.st);
  return {};
}

// Removes the record of the object's origin first, because a new object may get the removed object's
// inode number immediately.
Status remove_last_name(Overlay& overlay, const std::string& path,
                        const std::function<Status()>& remove) {
  if (overlay.state.origins.is_empty()) return remove();
  const auto st = overlay.state.upper_paths->stat(path);
  const bool is_last = st && (S_ISDIR(st->st_mode) || st->st_nlink == 1);
  const auto record = is_last ? overlay.state.origins.remove(st->st_ino) : std::nullopt;
  Status removed = remove();
  if (!removed && record) overlay.state.origins.put_back(st->st_ino, *record);
  return removed;
}

void forget_link_if_gone(Overlay& overlay, const struct stat& st) {
  if (overlay.state.links.forget_if_gone(st.st_dev, st.st_ino))
    (void)overlay.state.origins.remove(st.st_ino);
}

Status remove_upper_dir(Overlay& overlay, const std::string& path) {
  Status removed =
      remove_last_name(overlay, path, [&]() REQUIRES_SHARED(overlay.state.mutex) -> Status {
        Status unlinked = overlay.state.upper_paths->unlink(path, AT_REMOVEDIR);
        if (!unlinked.failed_with(ENOTEMPTY)) return unlinked;  // ENOTEMPTY: markers are left
        CACHESHIM_TRY(parent, open_upper_parent(overlay, path));
        const std::string staged = overlay.state.staged.new_name();
        CACHESHIM_CHECK(sys::rename_at(parent.get(), std::string(base_name(path)),
                                       overlay.state.work->get(), staged));
        // Fails if an NFS client keeps a removed file because it is still open. The next daemon removes the rest.
        (void)sys::remove_tree(overlay.state.work->get(), staged);
        return {};
      });
  if (removed) overlay.state.index.erase_tree(path);
  return removed;
}

Status remove_upper_file(Overlay& overlay, const std::string& path) {
  const auto unlink = [&]() REQUIRES_SHARED(overlay.state.mutex) {
    return overlay.state.upper_paths->unlink(path);
  };
  if (overlay.state.links.is_empty()) return remove_last_name(overlay, path, unlink);
  const auto st = overlay.state.upper_paths->stat(path);
  CACHESHIM_CHECK(remove_last_name(overlay, path, unlink));
  if (st && st->st_nlink == 2) forget_link_if_gone(overlay, *st);
  return {};
}

Status check_rename_target(const Overlay& overlay, const Located& source, const std::string& to,
                           const Result<Located>& target, unsigned flags) {
  CACHESHIM_CHECK(overlay.state.check_name(to));
  if (!target) {
    if (!target.failed_with(ENOENT)) return target.error();
    if (flags == RENAME_EXCHANGE) return Errno(ENOENT);
    return {};
  }
  if (flags == RENAME_NOREPLACE) return Errno(EEXIST);
  if (flags == RENAME_EXCHANGE) return {};
  const bool onto_dir = S_ISDIR(target->st.st_mode);
  if (onto_dir && !S_ISDIR(source.st.st_mode)) return Errno(EISDIR);
  if (!onto_dir && S_ISDIR(source.st.st_mode)) return Errno(ENOTDIR);
  if (!onto_dir) return {};
  CACHESHIM_TRY(entries, overlay.list(to));
  if (!entries.empty()) return Errno(ENOTEMPTY);
  return {};
}

// rename(2) does nothing if both names belong to one file.
bool are_one_file(const struct stat& one, const struct stat& other) {
  return S_ISREG(one.st_mode) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool becomes_common(const Overlay& overlay, const Located& source, const std::string& to) {
  return S_ISREG(source.st.st_mode) && overlay.state.locks.files.is_shared_name(to);
}

}  // namespace cacheshim
