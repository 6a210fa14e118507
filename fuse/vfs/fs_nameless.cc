// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <limits>
#include <utility>

#include "fuse/nodes/open_flags.h"
#include "fuse/vfs/filesystem.h"
#include "fuse/services/freshness/timeouts.h"
#include "store/sys/sys.h"

// Objects that are not found by their name. A file or directory may be open when its name is removed: in this
// view, or in the base by another job, gc, verify or a process beside the mount. The node then finds it by an
// O_PATH descriptor of its own, or by the descriptors of the open handles (OpenFiles). All calls on an open
// descriptor then work as on a local file system. Common files are never found by name once the kernel knows
// them (NodeTable).
namespace cacheshim {

// An O_PATH descriptor of the object that is about to lose its name, for processes that have it open or have
// it as their directory; nothing if the kernel knows no node of that name.
NodeTable::Removed Filesystem::keep_object(const Overlay& overlay, NodeIndex parent,
                                           const std::string& name, const std::string& path) const {
  const NodeIndex node = nodes_.find(parent, name);
  if (node == 0 || nodes_.info(node).common != Common::kNone) return {};
  auto opened = overlay.open(path, O_PATH);
  if (!opened) return {};
  const auto st = sys::stat_fd(opened->fd.get());
  // Another process may have put another file there since the kernel's lookup.
  if (!st || !nodes_.is_current(node, *st, opened->in_upper)) return {};
  const bool has_links = !S_ISDIR(st->st_mode) && st->st_nlink > 1;
  return {std::move(opened->fd), opened->in_upper, has_links};
}

NodeTable::Removed Filesystem::prepare_removal(const Overlay& overlay, NodeRef parent,
                                               const std::string& name, const std::string& path) {
  NodeTable::Removed kept = keep_object(overlay, parent.node, name, path);
  if (kept.has_links) {
    const NodeRef file{nodes_.find(parent.node, name), parent.slot};
    pending_unlinks_.begin(encode(file), encode(parent), name);
  }
  return kept;
}

Result<UniqueFd> Filesystem::open_object(NodeIndex node) {
  const NodeInfo info = nodes_.info(node);
  if (info.object_fd() >= 0) return sys::reopen(info.object_fd(), O_PATH);
  const auto path = nodes_.path(node);
  if (!path) return open_files_.open_object(node);  // it has no name, or its directory has none
  auto opened = info.job->overlay.open(*path, O_PATH);
  if (opened.failed_with(ENOENT)) return open_files_.open_object(node);
  if (!opened) return opened.error();
  CACHESHIM_TRY(st, sys::stat_fd(opened->fd.get()));
  if (!nodes_.is_current(node, st, opened->in_upper)) return open_files_.open_object(node);
  return std::move(opened->fd);
}

// Call before a change of a base file: if its name no longer leads to it, the node gets an open descriptor of
// it in place of the name. Requires: Overlay::mutex() held exclusively. Errors: ESTALE if it is not open.
Status Filesystem::settle_name(NodeIndex node) {
  for (;;) {
    const NodeInfo info = nodes_.info(node);
    if (info.object_fd() >= 0) return {};
    if (!info.removed) {
      if (info.in_upper || info.is_view_root) return {};  // no other process changes these
      const auto path = nodes_.path(node);
      const auto found = path ? info.job->overlay.find(*path) : Result<Found>(Errno(ENOENT));
      if (found && nodes_.is_current(node, found->st, found->in_upper)) return {};
      if (!found && !found.failed_with(ENOENT)) return found.error();
    }
    CACHESHIM_TRY(object, open_files_.open_object(node));
    nodes_.lose_name(node, std::move(object));  // it may have others
  }
}

// Ensures that a node without a name holds an object of the layer. The base's object is common to all jobs,
// whether it still has a name or not. Requires: Overlay::mutex() held exclusively.
Status Filesystem::own_removed(NodeIndex node) {
  const NodeInfo info = nodes_.info(node);
  if (info.object_fd() < 0) return Errno(ESTALE);
  if (info.in_upper) return {};
  CACHESHIM_CHECK(info.job->ensure_layer(store_.layers()));
  CACHESHIM_TRY(copy, info.job->overlay.copy_nameless(info.object_fd()));
  CACHESHIM_TRY(st, sys::stat_fd(copy.get()));
  nodes_.copied_nameless(node, st, std::move(copy));
  return {};
}

// A file that has lost its name since the kernel resolved it, or that is opened through /proc.
Result<std::unique_ptr<FileHandle>> Filesystem::open_removed(NodeRef ref, const NodeInfo& info,
                                                             int flags) {
  if (info.object_fd() < 0) return Errno(ESTALE);
  CACHESHIM_TRY(fd, sys::reopen(info.object_fd(), backing_flags(flags)));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  return make_handle({std::move(fd), info.in_upper}, st, ref, info.job, flags);
}

// As fstat(2) of an open descriptor shows it.
Result<Attributes> Filesystem::attr_of_open(NodeRef ref) const {
  CACHESHIM_TRY(st, open_files_.stat(ref.node));
  CACHESHIM_TRY(shown, show(ref, nodes_.info(ref.node), st, true));
  // Its only remaining name may be in the trash.
  if (S_ISDIR(st.st_mode) || st.st_nlink == 1) shown.st_nlink = 0;
  return Attributes{shown, 0, st.st_ino};
}

Common Filesystem::common_kind(const std::string& path) const {
  return entries_.is_lock(path) ? Common::kLock : Common::kShared;
}

off_t Filesystem::most_bytes_of(Common kind) {
  return kind == Common::kLock ? kMostLockBytes : std::numeric_limits<off_t>::max();
}

// Whether the kernel has looked up a common file for a job that must leave it alone from now on. The job then
// has a file of its own of that name, which the kernel finds at its next lookup.
bool Filesystem::is_outdated(const NodeInfo& info) {
  return info.common != Common::kNone && info.job->is_refused();
}

// The descriptor that a common node holds, or, once the table has closed it, the file that its name or an open
// descriptor leads to. Requires: Overlay::mutex(). Errors: ESTALE if others have removed or replaced the file.
Result<std::shared_ptr<const UniqueFd>> Filesystem::common_object(NodeIndex node, const NodeInfo& info) {
  if (info.object) return info.object;
  CACHESHIM_TRY(object, open_object(node));
  return std::make_shared<const UniqueFd>(std::move(object));
}

// Whether the name of a common file leads to `st`. Requires: Overlay::mutex().
bool Filesystem::is_named(NodeIndex node, const NodeInfo& info, const struct stat& st) const {
  const auto path = nodes_.path(node);
  if (!path) return false;
  const auto named = info.job->overlay.find(*path);
  return named && named->st.st_dev == st.st_dev && named->st.st_ino == st.st_ino;
}

// Programs that unlink their lock files check st_nlink to learn whether the file that they have locked still
// exists. In this view it does not if the name leads elsewhere, though the file may have a name somewhere:
// hidden, or in the trash. Requires: Overlay::mutex().
Result<Attributes> Filesystem::attr_of_common(NodeRef ref, const NodeInfo& info) {
  CACHESHIM_TRY(object, common_object(ref.node, info));
  CACHESHIM_TRY(st, sys::stat_fd(object->get()));
  if (!is_named(ref.node, info, st)) st.st_nlink = 0;
  CACHESHIM_TRY(shown, show(ref, info, st, false));
  return Attributes{shown, 0, st.st_ino};
}

// Opens the file that the lookup found, as on a local file system: without a layer, and even if its name has
// been removed or replaced since.
Result<std::unique_ptr<FileHandle>> Filesystem::open_common(NodeRef ref, const NodeInfo& info,
                                                            int flags) {
  const std::shared_lock lock(info.job->overlay.mutex());
  const auto path = nodes_.path(ref.node);
  auto shared = shared_files_.make(path ? *path : "", info.common, flags, /*is_new=*/false);
  CACHESHIM_TRY(object, common_object(ref.node, info));
  CACHESHIM_TRY(fd, sys::reopen(object->get(), shared ? O_RDWR : backing_flags(flags)));
  if (info.common == Common::kLock) lock_access_.apply(fd.get());
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  if (!wants_write(flags)) note_use(fd.get(), st, flags);
  if (shared && (flags & O_TRUNC) != 0) CACHESHIM_CHECK(shared->stage(fd.get(), 0));
  CACHESHIM_TRY(handle, make_handle({std::move(fd), false, true, most_bytes_of(info.common)}, st,
                                    ref, info.job, flags));
  handle->shared = std::move(shared);
  return handle;
}

// Without O_EXCL, another process may have made it since the kernel's lookup: it is then opened, as by open(2).
Result<Filesystem::Created> Filesystem::create_common(NodeRef parent, const NodeInfo& info,
                                                      const std::string& path, int flags) {
  const Common kind = common_kind(path);
  const bool is_staged = kind == Common::kShared && wants_write(flags);
  auto made = info.job->overlay.create_lock(
      path, (is_staged ? O_RDWR : backing_flags(flags)) | (flags & O_EXCL));
  // Another object has the name: the kernel looks it up again.
  if (made.failed_with(EEXIST) && (flags & O_EXCL) == 0) return Errno(ESTALE);
  if (!made) return made.error();
  CACHESHIM_TRY(st, sys::stat_fd(made->fd.get()));
  lock_removals_.forget(*info.job, st);
  CACHESHIM_TRY(object, sys::reopen(made->fd.get(), O_PATH));
  const DirectoryLookup look = timeouts_.begin(*info.job, std::string(parent_path(path)));
  CACHESHIM_TRY(entry, entry_of(parent, info, std::string(base_name(path)),
                                {st, false, std::nullopt, std::move(object)}, look));
  auto shared = shared_files_.make(path, kind, flags, made->is_new);
  const bool empties = shared && !made->is_new && (flags & O_TRUNC) != 0;
  if (empties) CACHESHIM_CHECK(shared->stage(made->fd.get(), 0));
  CACHESHIM_TRY(handle, make_handle({std::move(made->fd), false, true, most_bytes_of(kind)}, st,
                                    decode(entry.ino), info.job, flags));
  handle->shared = std::move(shared);
  return Created(entry, std::move(handle));
}

// verify_on_open: what has gone to trash since it is damaged, of the entry of what somebody is about to
// see of the base.
std::vector<std::string> Filesystem::put_damaged_away(NodeRef ref) {
  if (!keeper_.verifies_on_open()) return {};
  const NodeInfo info = nodes_.info(ref.node);
  const bool is_object = info.kind == NodeKind::kObject && !info.removed;
  if (!is_object || info.in_upper || info.is_dir) return {};
  const auto path = [&] {
    const std::shared_lock lock(info.job->overlay.mutex());
    return nodes_.path(ref.node);
  }();
  return path ? keeper_.check_on_open(*path) : std::vector<std::string>();
}

}  // namespace cacheshim
