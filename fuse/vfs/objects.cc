// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/objects.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <limits>

#include "fuse/vfs/set_ids.h"
#include "store/overlay/copy_up.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {

Result<NodeInfo> Objects::view_directory(NodeRef parent) {
  const NodeInfo info = mount_.nodes.info(parent.node);
  if (info.kind != NodeKind::kObject) return Errno(EPERM);
  if (info.removed) return Errno(ENOENT);
  info.job->use.touch();
  return info;
}

Result<std::string> Objects::child_path(const Job& /*job*/, NodeRef parent,
                                        const std::string& name) const {
  CACHESHIM_TRY(directory, mount_.nodes.path(parent.node));
  return join_path(directory, name);
}

Result<UniqueFd> Objects::open_object(const Job& job, NodeIndex node) {
  const NodeInfo info = mount_.nodes.info(node);
  if (info.object_fd() >= 0) return sys::reopen(info.object_fd(), O_PATH);
  const auto path = mount_.nodes.path(node);
  if (!path)
    return mount_.open_files.open_object(node);  // the object or its directory has no name
  auto opened = job.overlay.open(*path, O_PATH);
  if (opened.failed_with(ENOENT)) return mount_.open_files.open_object(node);
  if (!opened) return opened.error();
  CACHESHIM_TRY(st, sys::stat_fd(opened->fd.get()));
  if (!mount_.nodes.objects().is_current(node, st, opened->in_upper))
    return mount_.open_files.open_object(node);
  return std::move(opened->fd);
}

Result<Objects::NamedFile> Objects::open_named(const Job& job, NodeIndex node, int access) const {
  CACHESHIM_TRY(path, mount_.nodes.path(node));
  Result<Opened> opened = job.overlay.open(path, access);
  if (opened.failed_with(ENOENT)) return Errno(ESTALE);
  if (!opened) return opened.error();
  CACHESHIM_TRY(st, sys::stat_fd(opened->fd.get()));
  if (!mount_.nodes.objects().is_current(node, st, opened->in_upper)) return Errno(ESTALE);
  return NamedFile{*std::move(opened), st};
}

Result<std::optional<Located>> Objects::settle_name(const Job& job, NodeIndex node) {
  for (;;) {
    const NodeInfo info = mount_.nodes.info(node);
    if (info.object_fd() >= 0) return std::optional<Located>();
    if (!info.removed) {
      // Only this daemon changes the layer and the view's root, so the name still leads to the object.
      if (info.in_upper || info.is_view_root) return std::optional<Located>();
      const auto path = mount_.nodes.path(node);
      auto found = path ? job.overlay.locate(*path) : Result<Located>(Errno(ENOENT));
      if (found && mount_.nodes.objects().is_current(node, found->st, found->in_upper()))
        return std::optional(*std::move(found));
      if (!found && !found.failed_with(ENOENT)) return found.error();
    }
    CACHESHIM_TRY(object, mount_.open_files.open_object(node));
    // No charge: the node has an open handle, which is already charged. The loop continues because the node may have
    // other names.
    mount_.nodes.names().replace_name_by_descriptor(node, {std::move(object), Charge()});
  }
}

Status Objects::own_removed(Job& job, NodeIndex node) {
  const NodeInfo info = mount_.nodes.info(node);
  if (info.object_fd() < 0) return Errno(ESTALE);
  if (info.in_upper) return {};
  CACHESHIM_CHECK(job.ensure_layer(mount_.store.layers()));
  CACHESHIM_TRY(copy, copy_nameless(job.overlay, info.object_fd()));
  CACHESHIM_TRY(st, sys::stat_fd(copy.get()));
  mount_.nodes.objects().copied_nameless(node, st, std::move(copy));
  return {};
}

NodeNames::Removed Objects::keep_object(const Overlay& overlay, NodeName name,
                                        const std::string& path, uid_t uid) const {
  const NodeIndex node = mount_.nodes.names().find(name.parent, name.component);
  if (node == 0 || mount_.nodes.info(node).common != CommonKind::kNone) return {};
  auto opened = overlay.open(path, O_PATH);
  if (!opened) return {};
  const auto st = sys::stat_fd(opened->fd.get());
  // Another process may have replaced the file since the kernel's lookup.
  if (!st || !mount_.nodes.objects().is_current(node, *st, opened->in_upper)) return {};
  const bool has_links = !S_ISDIR(st->st_mode) && st->st_nlink > 1;
  auto charge = mount_.charge(uid, Limit::kHandles);
  if (!charge) return {{}, false, has_links};
  return {{std::move(opened->fd), *std::move(charge)}, opened->in_upper, has_links};
}

NodeNames::Removed Objects::prepare_removal(const Request& request, NodeRef parent,
                                            const std::string& name, const std::string& path,
                                            const Overlay& overlay) {
  NodeNames::Removed kept =
      keep_object(overlay, {parent.node, name}, path, request.caller.uid);
  if (kept.has_links) {
    const NodeRef file{mount_.nodes.names().find(parent.node, name), parent.slot};
    const Job& job = *mount_.nodes.info(parent.node).job;
    mount_.pending_unlinks.begin(encode(file), {encode(parent), name, Notification::Kind::kName,
                                                job.views.owner(parent.slot).value_or(kNoOwner)});
  }
  return kept;
}

Result<PreparedCopies> Objects::prepare_change(NodeIndex node, off_t keep_bytes, bool whole_tree) {
  if (node == 0) return PreparedCopies{};
  const NodeInfo info = mount_.nodes.info(node);
  const bool is_own_file = info.in_upper && !info.is_dir;
  if (info.kind != NodeKind::kObject || info.removed || is_own_file) return PreparedCopies{};
  // A change to a directory's own attributes does not need its contents in the layer.
  if (info.is_dir && !whole_tree) return PreparedCopies{};
  const auto path = mount_.nodes.path(node);
  // The name was removed meanwhile: the change itself handles that.
  if (!path) return PreparedCopies{};
  bool has_layer = false;
  {
    const ReaderLock lock(info.job->overlay.mutex());
    has_layer = info.job->overlay.has_layer();
  }
  if (!has_layer) {
    const WriterLock lock(info.job->overlay.mutex());
    CACHESHIM_CHECK(info.job->ensure_layer(mount_.store.layers()));
  }
  return prepare_copy_up(info.job->overlay, *path, keep_bytes);
}

Result<UniqueFd> Objects::open_for_change(Job& job, NodeIndex node, off_t keep_bytes) {
  CACHESHIM_CHECK(job.ensure_layer(mount_.store.layers()));
  CACHESHIM_TRY(found, settle_name(job, node));
  const NodeInfo info = mount_.nodes.info(node);
  if (!info.removed) {
    CACHESHIM_TRY(path, mount_.nodes.path(node));
    CACHESHIM_CHECK(found ? copy_up_found(job.overlay, path, *found, keep_bytes)
                          : copy_up(job.overlay, path, keep_bytes));
  } else {
    CACHESHIM_CHECK(own_removed(job, node));
  }
  return open_object(job, node);
}

Result<std::shared_ptr<const UniqueFd>> Objects::common_object(NodeIndex node,
                                                               const NodeInfo& info) {
  if (info.object) return info.object;
  CACHESHIM_TRY(object, open_object(*info.job, node));
  return std::make_shared<const UniqueFd>(std::move(object));
}

bool Objects::is_named(NodeIndex node, const NodeInfo& info, const struct stat& st) const {
  const auto path = mount_.nodes.path(node);
  if (!path) return false;
  const auto named = info.job->overlay.find(*path);
  return named && named->st.st_dev == st.st_dev && named->st.st_ino == st.st_ino;
}

std::vector<std::string> Objects::trash_if_damaged(NodeRef ref) {
  if (!mount_.keeper.verifies_on_open()) return {};
  const NodeInfo info = mount_.nodes.info(ref.node);
  const bool is_object = info.kind == NodeKind::kObject && !info.removed;
  if (!is_object || info.in_upper || info.is_dir) return {};
  const auto path = [&] {
    const ReaderLock lock(info.job->overlay.mutex());
    return mount_.nodes.path(ref.node);
  }();
  return path ? mount_.keeper.check_on_open(*path) : std::vector<std::string>();
}

bool is_outdated(const NodeInfo& info) {
  return info.common != CommonKind::kNone && info.job->policy.is_refused();
}

CommonKind common_kind(const EntryMap& entries, const std::string& path) {
  return entries.is_lock(path) ? CommonKind::kLock : CommonKind::kShared;
}

off_t most_bytes_of(CommonKind kind) {
  return kind == CommonKind::kLock ? kMostLockBytes : std::numeric_limits<off_t>::max();
}

Result<UniqueFd> reopen_removed(const NodeInfo& info, int access) {
  if (info.object_fd() < 0) return Errno(ESTALE);
  return sys::reopen(info.object_fd(), access);
}

NewObject new_object(const OwnerMode& owners, const Request& request, mode_t mode, dev_t device) {
  if (!owners.keep) {
    return NewObject(mode & ~set_ids_to_refuse_at_creation(request.caller), device, std::nullopt);
  }
  return NewObject(mode, device,
                   Maker{owners.shown_uid.value_or(request.caller.uid),
                         owners.shown_gid.value_or(request.caller.gid), request.umask});
}

}  // namespace cacheshim
