// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/answers.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "fuse/services/freshness/timeouts.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {

Result<struct stat> Answers::show(NodeRef ref, const NodeInfo& info, const struct stat& st,
                                  bool in_upper) const {
  struct stat shown = info.job->views.show(ref.slot, st, in_upper, info.is_view_root);
  shown.st_ino = info.ino;
  if (S_ISDIR(st.st_mode)) {
    shown.st_ctim = mount_.nodes.objects().shown_ctime(ref.node, st.st_ctim);
    if (info.removed) shown.st_nlink = 0;
  }
  return shown;
}

// Reads the node's information again, under the overlay's mutex, because another request may have removed or replaced
// the name since the kernel resolved it. Errors: ESTALE if the name no longer leads to the node's object.
Result<Attributes> Answers::object_attr(NodeRef ref, const NodeInfo& given) {
  return Objects::find_by_path(given.job->overlay, [&] { return attr_by_path(ref); });
}

Result<Attributes> Answers::attr_by_path(NodeRef ref) {
  const NodeInfo info = mount_.nodes.info(ref.node);
  info.job->overlay.mutex().assert_held_shared();
  if (info.common != CommonKind::kNone) return attr_of_common(ref, info);
  if (info.removed) {
    if (info.object_fd() < 0) return Errno(ESTALE);
    CACHESHIM_TRY(st, sys::stat_fd(info.object_fd()));
    info.job->overlay.correct_links(st);
    if (!info.in_upper) st.st_nlink = 0;  // the base may still have the name, but this view does not
    CACHESHIM_TRY(shown, show(ref, info, st, true));
    const bool may_change = mount_.io_modes.may_be_written(encode(ref));
    return Attributes{shown, may_change ? 0 : kShortTimeout, st.st_ino};
  }
  CACHESHIM_TRY(path, mount_.nodes.path(ref.node));
  const DirectoryLookup lookup = mount_.timeouts.begin(*info.job, std::string(parent_path(path)));
  lookup.job->overlay.mutex().assert_held_shared();  // lookup.job is info.job
  Result<Found> found = info.job->overlay.find(path);
  if (found.failed_with(ENOENT)) return Errno(ESTALE);
  if (!found) return found.error();
  if (!mount_.nodes.objects().is_current(ref.node, found->st, found->in_upper))
    return Errno(ESTALE);
  CACHESHIM_TRY(shown, show(ref, info, found->st, found->in_upper));
  // A process with CAP_DAC_OVERRIDE passes the kernel's permission check against the cached mode. The daemon may then
  // learn only from a GETATTR of the root that another user has entered the view, so the kernel must not cache the
  // attributes for long.
  const bool is_private_root = info.is_view_root && info.job->views.are_private();
  const double keep =
      is_private_root ? kShortTimeout : mount_.timeouts.of_attributes(lookup, *found, ref);
  return Attributes{shown, keep, found->st.st_ino};
}

// A program that unlinks its lock file checks st_nlink to determine whether the file that it has locked still has its
// name. If the name now leads to another file in this view, st_nlink must be 0, even if the locked file still has a
// name that the view hides or that is in the trash.
Result<Attributes> Answers::attr_of_common(NodeRef ref, const NodeInfo& info) {
  CACHESHIM_TRY(object, objects_.common_object(ref.node, info));
  CACHESHIM_TRY(st, sys::stat_fd(object->get()));
  if (!objects_.is_named(ref.node, info, st)) st.st_nlink = 0;
  CACHESHIM_TRY(shown, show(ref, info, st, false));
  return Attributes{shown, 0, st.st_ino};
}

Result<Attributes> Answers::attr_of_open(NodeRef ref) const {
  CACHESHIM_TRY(st, mount_.open_files.stat(ref.node));
  CACHESHIM_TRY(shown, show(ref, mount_.nodes.info(ref.node), st, true));
  // The object has lost its name in this view. If it still has one name, that name may be in the trash.
  if (S_ISDIR(st.st_mode) || st.st_nlink == 1) shown.st_nlink = 0;
  return Attributes{shown, 0, st.st_ino};
}

Result<Attributes> Answers::handle_attr(NodeRef ref, const NodeInfo& info, struct stat st,
                                        bool in_upper) {
  {
    // st_nlink must not count the staged copy's name in staging. So show 1 if the file still has its own name,
    // otherwise 0.
    const ReaderLock lock(info.job->overlay.mutex());
    CACHESHIM_TRY(object, objects_.common_object(ref.node, info));
    CACHESHIM_TRY(opened, sys::stat_fd(object->get()));
    const bool has_name =
        objects_.is_named(ref.node, info, opened) || objects_.is_named(ref.node, info, st);
    st.st_nlink = has_name ? 1 : 0;
  }
  CACHESHIM_TRY(shown, show(ref, info, st, in_upper));
  return Attributes{shown, 0, st.st_ino};
}

std::optional<Result<Attributes>> Answers::attr_of_writer(const Request& request, NodeRef ref,
                                                          const NodeInfo& info) {
  const auto own = mount_.shared_files.own_copy_of(ref.node, request.caller.tid);
  if (!own) return std::nullopt;
  if (!own->st) return Result<Attributes>(own->st.error());
  return handle_attr(ref, info, *own->st, own->in_upper);
}

Result<Entry> Answers::entry_of(Job& job, NodeRef parent, const std::string& name, Found found,
                                const DirectoryLookup& lookup) {
  const bool is_common = static_cast<bool>(found.lock);
  const NodeIndex node = is_common
                             ? mount_.nodes.intern_common(
                                   parent.node, name, &job,
                                   {common_kind(mount_.entries, join_path(lookup.directory, name)),
                                    found.st, std::move(found.lock)})
                             : mount_.nodes.intern(parent.node, name, &job, found);
  const NodeRef ref{node, parent.slot};
  CACHESHIM_TRY(st, show(ref, mount_.nodes.info(node), found.st, found.in_upper));
  Entry entry{};
  entry.ino = encode(ref);
  entry.attr = st;
  // Timeout 0: other processes may replace or unlink a lock file at any time, and programs rely on its current inode
  // number and st_nlink while they hold the lock.
  if (is_common) return entry;
  lookup.job->overlay.mutex().assert_held_shared();  // lookup.job is `job`
  entry.entry_timeout = mount_.timeouts.of_name(lookup, &found);
  entry.attr_timeout = mount_.timeouts.of_attributes(lookup, found, ref);
  if (mount_.pending_unlinks.has(entry.ino)) {
    ++entry.attr.st_nlink;
    entry.attr_timeout = 0;
  }
  return entry;
}

Result<Entry> Answers::find_entry(Job& job, NodeRef parent, const std::string& name) {
  CACHESHIM_TRY(directory, mount_.nodes.path(parent.node));
  const DirectoryLookup lookup = mount_.timeouts.begin(job, directory);
  const std::string path = join_path(directory, name);
  Result<Found> found = job.overlay.find(path);
  if (found) return entry_of(job, parent, name, *std::move(found), lookup);
  if (!found.failed_with(ENOENT)) return found.error();
  Entry nothing{};
  if (!job.overlay.locks().files.is_shared_name(path))
    nothing.entry_timeout = mount_.timeouts.of_name(lookup, nullptr);
  return nothing;
}

Result<Entry> Answers::made_entry(Job& job, NodeRef parent, const std::string& name) {
  CACHESHIM_TRY(directory, mount_.nodes.path(parent.node));
  const DirectoryLookup lookup = mount_.timeouts.begin(job, directory);
  Result<Found> made = job.overlay.find(join_path(directory, name));
  if (made.failed_with(ENOENT)) return Errno(EIO);  // another process has removed it from the layer
  if (!made) return made.error();
  if (made->lock) mount_.lock_removals.forget(job, made->st);
  mount_.nodes.names().detach_stale(parent.node, name, made->st);
  return entry_of(job, parent, name, *std::move(made), lookup);
}

}  // namespace cacheshim
