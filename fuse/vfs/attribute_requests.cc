// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/attribute_requests.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include <utility>

#include "fuse/services/freshness/timeouts.h"
#include "fuse/vfs/change_guard.h"
#include "fuse/vfs/set_ids.h"
#include "store/sys/new_object.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

bool is_user_xattr(const char* name) { return std::string_view(name).starts_with("user."); }

bool is_acl(std::string_view name) { return name == kAccessAcl || name == kDefaultAcl; }

// xattr(7): only regular files and directories have user attributes.
Result<bool> may_have(int fd, const char* name) {
  if (!is_user_xattr(name)) return true;
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
}

// Returns the error for an attribute that the mount does not store: ENODATA for a security attribute, as if no file had
// one; EOPNOTSUPP for all others, such as trusted attributes.
Errno foreign_xattr(const char* name) {
  return Errno(std::string_view(name).starts_with("security.") ? ENODATA : EOPNOTSUPP);
}

timespec wanted_time(const struct timespec& given, int to_set, int set, int set_now) {
  if ((to_set & set_now) != 0) return {0, UTIME_NOW};
  if ((to_set & set) != 0) return given;
  return {0, UTIME_OMIT};
}

// Sets the owner first, because chown(2) clears set-id bits, which the mode may set again.
Status apply_attr(int fd, const struct stat& attr, int to_set) {
  if ((to_set & (FATTR_UID | FATTR_GID)) != 0) {
    const uid_t uid = (to_set & FATTR_UID) != 0 ? attr.st_uid : static_cast<uid_t>(-1);
    const gid_t gid = (to_set & FATTR_GID) != 0 ? attr.st_gid : static_cast<gid_t>(-1);
    CACHESHIM_CHECK(sys::set_owner(fd, uid, gid));
  }
  if ((to_set & FATTR_SIZE) != 0) CACHESHIM_CHECK(sys::set_size(fd, attr.st_size));
  if ((to_set & FATTR_MODE) != 0) CACHESHIM_CHECK(sys::set_mode(fd, attr.st_mode & 07777));
  constexpr int kTimes = FATTR_ATIME | FATTR_ATIME_NOW | FATTR_MTIME | FATTR_MTIME_NOW;
  if ((to_set & kTimes) == 0) return {};
  const timespec times[2] = {wanted_time(attr.st_atim, to_set, FATTR_ATIME, FATTR_ATIME_NOW),
                             wanted_time(attr.st_mtim, to_set, FATTR_MTIME, FATTR_MTIME_NOW)};
  return sys::set_times(fd, times);
}

// Returns the attributes that the mount ignores in a setattr. With owner=squash, it ignores a new owner or group; with
// owner=keep, only if it shows a fixed owner or group (OwnerMode). The kernel has already checked the caller's
// permission against the shown owner.
int ignored_attrs(const OwnerMode& owners) {
  int ignored = FATTR_CTIME;  // the backing file system sets the change time
  if (!owners.keep || owners.shown_uid) ignored |= FATTR_UID;
  if (!owners.keep || owners.shown_gid) ignored |= FATTR_GID;
  return ignored;
}

bool has_set_ids(const Result<Attributes>& attr) {
  return attr && S_ISREG(attr->st.st_mode) && (attr->st.st_mode & (S_ISUID | S_ISGID)) != 0;
}

}  // namespace

Result<Attributes> AttributeRequests::attr_of_staged(NodeRef ref, const NodeInfo& info,
                                                     const FileHandle& handle) {
  CACHESHIM_TRY(st, sys::stat_fd(handle.fd.get()));
  return answers_.handle_attr(ref, info, st, handle.in_upper);
}

Result<Attributes> AttributeRequests::attr_of_object(const Request& request, NodeRef ref,
                                                     const NodeInfo& info) {
  auto own = answers_.attr_of_writer(request, ref, info);
  return own ? *std::move(own) : answers_.object_attr(ref, info);
}

void AttributeRequests::getattr(const Request& request, NodeId ino, std::optional<std::uint64_t> fh,
                                AttributesCompletion completion) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (info.kind != NodeKind::kObject) {
    return completion.complete(Attributes{own_tree_.own_attr(ref.node, info), kShortTimeout});
  }
  if (!fh && flight_requests_.may_be_placeholder(ref.node, info)) {
    return flight_requests_.wait_for_flight(request, ref, info, std::move(completion));
  }
  // The daemon usually learns from a lookup of the view's name that a user enters the view. The kernel sends no lookup
  // if the view or one of its directories is bind-mounted elsewhere, or is the working directory of a process that
  // changed its uid. In these cases, the daemon records the user at this GETATTR. A GETATTR of a file records no user,
  // because the caller may have received an open descriptor from another process.
  Job& job = *info.job;
  if (info.is_view_root && !fh && own_tree_.needs_new_lookup(request.caller, job)) {
    return completion.complete(Errno(ESTALE));
  }
  const bool is_way_in = info.is_view_root || (info.is_dir && !job.views.claim.is_invalidated());
  const bool enters = is_way_in && job.views.are_private();
  if (enters) (void)job.views.enter(request.caller);
  FileHandle* handle = fh ? mount_.handles.file(*fh) : nullptr;
  const bool is_staged = handle != nullptr && handle->shared != nullptr;
  Result<Attributes> attr =
      is_staged ? attr_of_staged(ref, info, *handle) : attr_of_object(request, ref, info);
  if (attr.failed_with(ESTALE)) attr = answers_.attr_of_open(ref);
  if (!attr) return completion.complete(attr);
  const bool keeps_links = mount_.pending_unlinks.has(ino);
  const auto answer = [this, ino, keeps_links](AttributesCompletion& pending,
                                               const Attributes& found) {
    if (keeps_links) mount_.invalidation.notifier().invalidate_attributes({ino});
    pending.complete(found);
  };
  if (!enters) return answer(completion, *attr);
  mount_.claim_invalidation.answer_entered(
      job, ref.node,
      [answer, pending = share(std::move(completion)), found = *attr] { answer(*pending, found); });
}

// A resize clears a file's set-id bits. A chown clears them too, even if the mount ignores the chown, or if the owner
// stays the same. The kernel sends a SETATTR without any attribute in two cases: for a chown that changes nothing, and
// before a write or fallocate. If a process has the file open for writing, this function assumes the second case.
Result<AttributeRequests::SetIds> AttributeRequests::set_ids_after(const Request& request,
                                                                   NodeRef ref,
                                                                   const NodeInfo& info,
                                                                   int to_set) {
  const bool is_chown = (to_set & (FATTR_UID | FATTR_GID)) != 0;
  if (!is_chown && request.kills_set_ids) return SetIds::kDroppedByWrite;
  if (!is_chown && to_set != 0) return SetIds::kStay;
  const auto attr = answers_.object_attr(ref, info);
  if (!has_set_ids(attr)) return SetIds::kStay;
  if (is_chown) return SetIds::kDroppedByChown;
  if (info.job->unsettled.is_being_written(attr->st.st_dev, attr->backing_inode))
    return SetIds::kDroppedByWrite;
  const uid_t uid = request.caller.uid;
  if (uid != 0 && uid != attr->st.st_uid) return Errno(EPERM);
  return SetIds::kDroppedByChown;
}

// Changes the size and times of a common file (a lock file, or a file of class `shared`), which all users share. Keeps
// the mode and the owner, so that every user can open the file, no matter who has created it.
Status AttributeRequests::change_lock(int fd, off_t most_bytes, const struct stat& attr,
                                      int to_set) {
  to_set &= ~(FATTR_MODE | FATTR_UID | FATTR_GID);
  if ((to_set & FATTR_SIZE) != 0 && attr.st_size > most_bytes) return Errno(EFBIG);
  return apply_attr(fd, attr, to_set);
}

Status AttributeRequests::change_common(NodeRef ref, const NodeInfo& info, const struct stat& attr,
                                        int to_set) {
  const ReaderLock lock(info.job->overlay.mutex());
  CACHESHIM_TRY(object, objects_.common_object(ref.node, info));
  return change_lock(object->get(), most_bytes_of(info.common), attr, to_set);
}

Status AttributeRequests::change_attr(const Request& request, NodeRef ref, const NodeInfo& info,
                                      const struct stat& attr, int to_set, FileHandle* handle) {
  // Ignores the change: the root of a private view always has mode 0700.
  if (info.is_view_root && info.job->views.are_private()) return {};
  if (handle == nullptr && is_outdated(info)) return Errno(ESTALE);
  if (info.common != CommonKind::kNone) return change_common(ref, info, attr, to_set);
  CACHESHIM_TRY(set_ids, set_ids_after(request, ref, info, to_set));
  const bool kills_set_ids = set_ids == SetIds::kDroppedByWrite;
  to_set &= ~ignored_attrs(mount_.options.owners);
  if (to_set == 0 && set_ids == SetIds::kStay) return {};
  const bool resizes = (to_set & FATTR_SIZE) != 0;
  if (resizes && handle != nullptr && handle->writable) {
    const auto resized = file_data_.change_data(*handle, [&](int fd) -> Result<std::size_t> {
      if (kills_set_ids) CACHESHIM_CHECK(file_data_.drop_privileges(request, ref, fd));
      CACHESHIM_CHECK(sys::set_size(fd, attr.st_size));
      return std::size_t{0};
    });
    if (!resized) return resized.error();
    to_set &= ~FATTR_SIZE;
  }
  const off_t keep_bytes = resizes ? attr.st_size : kWholeFile;
  CACHESHIM_TRY(prepared, objects_.prepare_change(ref.node, keep_bytes));
  const WriterLock lock(info.job->overlay.mutex());
  CACHESHIM_TRY(fd, objects_.open_for_change(*info.job, ref.node, keep_bytes));
  if (kills_set_ids) CACHESHIM_CHECK(file_data_.drop_privileges(request, ref, fd.get()));
  if (set_ids == SetIds::kDroppedByChown) CACHESHIM_CHECK(drop_set_ids_on_chown(fd.get()));
  CACHESHIM_TRY(refused, set_ids_to_refuse(mount_.options.owners, request.caller, fd.get()));
  struct stat allowed = attr;
  allowed.st_mode &= ~refused;
  // With this mode, the user can no longer list or enter the directory, so the shadow filter must prevent direct opens
  // below it.
  if (info.is_dir && (to_set & FATTR_MODE) != 0 && (allowed.st_mode & 0500) != 0500) {
    if (const auto path = mount_.nodes.path(ref.node)) info.job->filter.add(*path, true);
  }
  const Status applied = apply_attr(fd.get(), allowed, to_set);
  mount_.invalidation.data_changed(*info.job, ref.node, ref.slot);
  return applied;
}

Result<Attributes> AttributeRequests::change_staged(NodeRef ref, const NodeInfo& info,
                                                    const struct stat& attr, int to_set,
                                                    FileHandle& handle) {
  const int fd = handle.fd.get();
  const MutexLock lock(handle.shared->mutex);
  if ((to_set & FATTR_SIZE) != 0) CACHESHIM_CHECK(handle.shared->stage(fd, attr.st_size));
  CACHESHIM_CHECK(change_lock(fd, handle.most_bytes, attr, to_set));
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  return answers_.handle_attr(ref, info, st, handle.in_upper);
}

// Serves truncate(2) of a file of class `shared`, and each change through an open handle whose writes are staged.
// Returns nothing for other changes and files.
std::optional<Result<Attributes>> AttributeRequests::try_change_shared(
    NodeRef ref, const NodeInfo& info, const struct stat& attr, int to_set, FileHandle* handle) {
  if (handle != nullptr && handle->shared) return change_staged(ref, info, attr, to_set, *handle);
  if ((to_set & FATTR_SIZE) == 0) return std::nullopt;
  if (info.common != CommonKind::kShared || is_outdated(info)) return std::nullopt;
  const auto found = [&] {
    const ReaderLock lock(info.job->overlay.mutex());
    return std::pair(mount_.nodes.path(ref.node), objects_.common_object(ref.node, info));
  }();
  if (!found.first) return std::nullopt;
  if (!found.second) return found.second.error();
  return [&]() -> Result<Attributes> {
    const auto change = [&](int fd) {
      return change_lock(fd, most_bytes_of(info.common), attr, to_set);
    };
    CACHESHIM_TRY(st, mount_.shared_files.change_named(*found.first, (*found.second)->get(),
                                                       attr.st_size, change));
    CACHESHIM_TRY(shown, answers_.show(ref, info, st, false));
    return Attributes{shown, 0, st.st_ino};
  }();
}

Result<Attributes> AttributeRequests::setattr(const Request& request, NodeId ino,
                                              const struct stat& attr, int to_set,
                                              std::optional<std::uint64_t> fh) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  FileHandle* handle = fh ? mount_.handles.file(*fh) : nullptr;
  if (info.kind != NodeKind::kObject) {
    // An open with O_TRUNC of a control file succeeds and changes nothing.
    const bool harmless = (to_set & ~FATTR_SIZE) == 0;
    if (!harmless) return Errno(EPERM);
    return Attributes{own_tree_.own_attr(ref.node, info), kShortTimeout};
  }
  if (auto shared = try_change_shared(ref, info, attr, to_set, handle)) return *std::move(shared);
  CACHESHIM_CHECK(change_attr(request, ref, info, attr, to_set, handle));
  auto changed = answers_.object_attr(ref, info);
  return changed.failed_with(ESTALE) ? answers_.attr_of_open(ref)
                                     : changed;  // ESTALE: another process has removed the name
}

Result<std::string> AttributeRequests::readlink(const Request& request, NodeId ino) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (info.kind != NodeKind::kObject) return own_tree_.link_target(request, ref.node, info);
  if (ChangeGuard::is_kept_from(request, info)) return Errno(EACCES);
  return Objects::find_by_path(info.job->overlay, [&]() -> Result<std::string> {
    info.job->overlay.mutex().assert_held_shared();
    CACHESHIM_TRY(fd, objects_.open_object(*info.job, ref.node));
    return sys::read_link_at(fd.get(), "");
  });
}

Result<struct statvfs> AttributeRequests::statfs(NodeId ino) {
  const NodeInfo info = mount_.nodes.info(decode(ino).node);
  if (info.job == nullptr) return sys::statvfs_fd(mount_.store.base());
  const Overlay& overlay = info.job->overlay;
  const ReaderLock lock(overlay.mutex());
  // Writes go to the layer, so the free space of the layer's file system counts.
  return sys::statvfs_fd(overlay.has_layer() ? overlay.upper() : mount_.store.base());
}

bool AttributeRequests::keeps_xattr(const char* name) const {
  if (is_overlay_xattr(name)) return false;
  if (is_user_xattr(name)) return true;
  if (!mount_.options.owners.keep) return false;
  return (mount_.options.owners.acls && is_acl(name)) || std::string_view(name) == kCapability;
}

Status AttributeRequests::change_xattr(NodeId ino, const char* name,
                                       const std::function<Status(int fd)>& change) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (info.kind != NodeKind::kObject) return Errno(EPERM);
  if (info.common != CommonKind::kNone) return Errno(EOPNOTSUPP);
  CACHESHIM_TRY(prepared, objects_.prepare_change(ref.node));
  const WriterLock lock(info.job->overlay.mutex());
  CACHESHIM_TRY(fd, objects_.open_for_change(*info.job, ref.node, kWholeFile));
  CACHESHIM_TRY(allowed, may_have(fd.get(), name));
  if (!allowed) return Errno(EPERM);
  mount_.nodes.state(ref.node).set_lacks_capabilities(false);
  return change(fd.get());
}

Status AttributeRequests::setxattr(const Request& request, NodeId ino, const char* name,
                                   std::string_view value, int flags) {
  const auto change = [&](int fd) -> Status {
    CACHESHIM_CHECK(sys::set_xattr(fd, name, value, flags));
    return name == std::string_view(kAccessAcl) ? drop_foreign_set_group_id(request.caller, fd)
                                                : Status();
  };
  if (!keeps_xattr(name)) return Errno(EOPNOTSUPP);
  const NodeInfo info = mount_.nodes.info(decode(ino).node);
  if (info.kind == NodeKind::kObject) CACHESHIM_CHECK(info.job->grow(value.size()));
  return change_xattr(ino, name, change);
}

Status AttributeRequests::removexattr(NodeId ino, const char* name) {
  const auto remove = [&](int fd) { return sys::remove_xattr(fd, name); };
  return keeps_xattr(name) ? change_xattr(ino, name, remove) : Status(foreign_xattr(name));
}

// Reads a directory's attribute by path, without an open, to save time: the kernel reads the ACLs of a directory at
// each step of a path walk. Opens and checks a file first, because the file's path may now lead to another file.
Result<std::string> AttributeRequests::xattr_of(const Job& job, NodeIndex node, const char* name) {
  const NodeInfo info = mount_.nodes.info(node);
  if (!info.removed && info.is_dir && !is_user_xattr(name)) {
    CACHESHIM_TRY(path, mount_.nodes.path(node));
    return job.overlay.get_xattr(path, name);
  }
  CACHESHIM_TRY(fd, objects_.open_object(job, node));
  CACHESHIM_TRY(allowed, may_have(fd.get(), name));
  if (!allowed) return Errno(ENODATA);
  return sys::get_xattr(fd.get(), name);
}

Result<std::string> AttributeRequests::getxattr(NodeId ino, const char* name) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (!keeps_xattr(name)) return foreign_xattr(name);
  if (info.kind != NodeKind::kObject) return Errno(ENODATA);
  const bool is_capability = name == std::string_view(kCapability);
  if (is_capability && mount_.nodes.state(ref.node).lacks_capabilities()) return Errno(ENODATA);
  return Objects::find_by_path(info.job->overlay, [&]() -> Result<std::string> {
    info.job->overlay.mutex().assert_held_shared();
    auto found = xattr_of(*info.job, ref.node, name);
    const bool lacks = is_capability && found.failed_with(ENODATA);
    // Marks only objects of the layer, because other processes may change the attributes of the base's objects.
    // change_xattr() clears the mark with the mutex held exclusively, so it cannot interleave with this request.
    if (lacks && mount_.nodes.info(ref.node).in_upper)
      mount_.nodes.state(ref.node).set_lacks_capabilities(true);
    return found;
  });
}

Result<std::string> AttributeRequests::listxattr(NodeId ino) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (info.kind != NodeKind::kObject) return std::string();
  return Objects::find_by_path(info.job->overlay, [&]() -> Result<std::string> {
    info.job->overlay.mutex().assert_held_shared();
    CACHESHIM_TRY(fd, objects_.open_object(*info.job, ref.node));
    CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
    std::string names;
    if (S_ISLNK(st.st_mode)) return names;  // an O_PATH descriptor of a symlink cannot list attributes
    CACHESHIM_TRY(all, sys::list_xattrs(fd.get()));
    for (const std::string& name : all) {
      if (keeps_xattr(name.c_str())) names.append(name).append(1, '\0');
    }
    return names;
  });
}

}  // namespace cacheshim
