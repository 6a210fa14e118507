// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/files.h"

#include <fcntl.h>

#include <utility>

#include "fuse/nodes/open_flags.h"
#include "fuse/vfs/change_guard.h"
#include "store/overlay/changes.h"
#include "store/overlay/common_names.h"
#include "store/overlay/copy_up.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// For files of this size or more, copying the pages to the kernel takes longer than opening a backing file.
constexpr off_t kLargeFile = 256 * 1024;

// The caller may clear these flags by fcntl(F_SETFL), but the backing file keeps the flags that it was opened with.
constexpr int kFlagsOfBackingFile = O_APPEND | O_DIRECT | O_NOATIME;

// For O_TRUNC. Does not take the lock of `file`, because that lock must not be taken under Overlay::mutex(). The lock
// is not needed: `file` is new, so no other thread can reach it.
Status stage_empty(SharedFile& file, int fd) NO_THREAD_SAFETY_ANALYSIS { return file.stage(fd, 0); }

}  // namespace

Result<std::unique_ptr<FileHandle>> Files::make_handle(Opened opened, const struct stat& st,
                                                       NodeRef ref, Job& job, int flags) {
  auto handle = std::make_unique<FileHandle>();
  handle->fd = std::move(opened.fd);
  handle->node = ref.node;
  handle->slot = ref.slot;
  handle->job = &job;
  handle->in_upper = opened.in_upper;
  handle->access = flags & O_ACCMODE;
  handle->follow_noatime(flags);
  handle->writable = handle->access != O_RDONLY;
  handle->epoch = mount_.nodes.state(ref.node).epoch();
  handle->device = st.st_dev;
  handle->inode = st.st_ino;
  handle->is_lock_file = opened.is_lock;
  handle->is_shared_file = opened.is_lock && opened.most_bytes != kMostLockBytes;
  handle->most_bytes = opened.most_bytes;
  CACHESHIM_CHECK(choose_io(*handle, job, st, flags));
  // A write through a mapping does not update the attributes that the kernel has cached. If this open has copied the
  // file up, Job::copied_up() has already invalidated them.
  if (handle->may_be_mapped_for_writing() && !opened.is_new_copy)
    mount_.invalidation.notifier().invalidate_attributes({encode(ref)});
  mount_.nodes.state(ref.node).add_silent_handle();  // before `reports_close`: see NodeState
  handle->reports_close =
      opened.is_lock || lock_requests_.needs_flush(ref.node, flags, opened.is_new_copy);
  if (handle->reports_close) mount_.nodes.state(ref.node).remove_silent_handle();
  handle->counts_as_writer = !opened.is_lock && (handle->writable || handle->backing_id != 0);
  if (handle->counts_as_writer) job.unsettled.add_writer(st.st_dev, st.st_ino);
  ++job.use.open_files;
  handle->place = mount_.open_files.add(ref.node, handle->fd.get());
  (handle->in_upper ? mount_.counters.opens_layer : mount_.counters.opens_base)
      .fetch_add(1, std::memory_order_relaxed);
  return handle;
}

// Decides whether the kernel reads and writes the file by itself (passthrough). Conditions:
// - The file belongs to the layer, and stays there while it is open.
// - If the job may publish, the file is open for writing only, because a mapping could delay publishing for as long as
//   it exists. If the job may not publish, the file is open for writing, or is large.
// - The job's owner is not near a limit on layers (LayerUse), because no request tells the daemon how much the kernel
//   writes.
// - The caller's flags contain none that the backing file would keep (kFlagsOfBackingFile).
// - No other view shows the file, because the daemon must invalidate other views at each write.
// - No write needs to clear a capability, because the daemon would not see the write.
Status Files::choose_io(FileHandle& handle, const Job& job, const struct stat& st, int flags) {
  const bool keeps_flags = (flags & kFlagsOfBackingFile) != 0;
  const bool is_worth_it = job.policy.may_publish() ? handle.access == O_WRONLY
                                                    : handle.writable || st.st_size >= kLargeFile;
  const bool wanted =
      handle.in_upper && is_worth_it && !job.layer_use.is_near_limit() && !keeps_flags &&
      !job.views.shares_uids() &&
      (!mount_.options.owners.keep || mount_.nodes.state(handle.node).lacks_capabilities());
  CACHESHIM_TRY(backing_id, mount_.io_modes.open(encode({handle.node, handle.slot}),
                                                 {.fd = handle.fd.get(),
                                                  .st = st,
                                                  .wanted = wanted,
                                                  .readable = handle.access != O_WRONLY,
                                                  .writable = handle.writable}));
  handle.backing_id = backing_id;
  if (backing_id != 0 && handle.writable) {
    mount_.layer_meter.silent_growth().add(handle, st);
    mount_.request_measuring();
  }
  // A lock file needs direct I/O because other jobs write to it as well. A handle with keeps_flags must not use
  // passthrough, because the flags of its backing file could not be changed later. But if the inode is already in
  // passthrough mode (IoModes), this handle must be opened with the inode's backing file. FOPEN_DIRECT_IO then makes
  // the kernel send this handle's reads and writes to the daemon.
  handle.direct_io = handle.is_lock_file || (keeps_flags && backing_id != 0);
  return {};
}

Result<std::unique_ptr<FileHandle>> Files::open_writable(NodeRef ref, Job& job, int flags) {
  CACHESHIM_TRY(prepared,
                objects_.prepare_change(ref.node, (flags & O_TRUNC) != 0 ? 0 : kWholeFile));
  const WriterLock lock(job.overlay.mutex());
  const bool was_removed = mount_.nodes.info(ref.node).removed;
  CACHESHIM_CHECK(job.ensure_layer(mount_.store.layers()));
  CACHESHIM_TRY(found, objects_.settle_name(job, ref.node));
  if (!was_removed && mount_.nodes.info(ref.node).removed) return Errno(ESTALE);
  if (mount_.nodes.info(ref.node).removed) {
    CACHESHIM_CHECK(objects_.own_removed(job, ref.node));
    return open_removed(ref, job, mount_.nodes.info(ref.node), flags);
  }
  CACHESHIM_TRY(path, mount_.nodes.path(ref.node));
  CACHESHIM_TRY(fd, found ? open_writable_found(job.overlay, path, *found, backing_flags(flags))
                          : cacheshim::open_writable(job.overlay, path, backing_flags(flags)));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  Opened opened{std::move(fd), true};
  opened.is_new_copy = found && found->where == Where::kLowers;
  return make_handle(std::move(opened), st, ref, job, flags);
}

Result<std::unique_ptr<FileHandle>> Files::open_readable(NodeRef ref, Job& job, int flags) {
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (info.removed) return open_removed(ref, job, info, flags);
  CACHESHIM_TRY(found, objects_.open_named(job, ref.node, O_RDONLY));
  const bool in_upper = found.opened.in_upper;
  if (!in_upper) {
    mount_.keeper.note_use(found.opened.fd.get(), found.st, flags);
    if (job.filter.records_uses()) {
      if (const auto path = mount_.nodes.path(ref.node)) job.filter.note_use(*path);
    }
  }
  const bool keeps_pages = in_upper || mount_.nodes.state(ref.node).has_same_data(found.st);
  CACHESHIM_TRY(handle, make_handle(std::move(found.opened), found.st, ref, job, flags));
  handle->keeps_pages = keeps_pages;
  return handle;
}

Result<std::unique_ptr<FileHandle>> Files::open_file(NodeRef ref, Job& job, int flags) {
  job.use.touch();
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (is_outdated(info)) return Errno(ESTALE);
  if (info.common != CommonKind::kNone) return open_common(ref, info, flags);
  if (wants_write(flags)) return open_writable(ref, job, flags);
  auto opened = Objects::find_by_path(job.overlay, [&] {
    job.overlay.mutex().assert_held_shared();
    return open_readable(ref, job, flags);
  });
  if (opened.failed_with(ESTALE) && mount_.open_files.has(ref.node)) {
    // After ESTALE the kernel repeats the open: through /proc/PID/fd immediately, or by name after a new lookup.
    const WriterLock lock(job.overlay.mutex());
    (void)objects_.settle_name(job,
                               ref.node);  // an error does not matter: this open fails in any case
  }
  return opened;
}

// Opens a file that has lost its name: another request has removed the name after the kernel resolved it, or the caller
// opens the file through /proc/PID/fd.
Result<std::unique_ptr<FileHandle>> Files::open_removed(NodeRef ref, Job& job, const NodeInfo& info,
                                                        int flags) {
  CACHESHIM_TRY(fd, reopen_removed(info, backing_flags(flags)));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  return make_handle({std::move(fd), info.in_upper}, st, ref, job, flags);
}

// Opens the file that the lookup found, even if its name has been removed or replaced since then. Needs no layer.
Result<std::unique_ptr<FileHandle>> Files::open_common(NodeRef ref, const NodeInfo& info,
                                                       int flags) {
  const ReaderLock lock(info.job->overlay.mutex());
  const auto path = mount_.nodes.path(ref.node);
  auto shared = mount_.shared_files.make(path ? *path : "", info.common, flags, /*is_new=*/false);
  CACHESHIM_TRY(object, objects_.common_object(ref.node, info));
  CACHESHIM_TRY(fd, sys::reopen(object->get(), shared ? O_RDWR : backing_flags(flags)));
  if (info.common == CommonKind::kLock) mount_.lock_access.apply(fd.get());
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  if (!wants_write(flags)) mount_.keeper.note_use(fd.get(), st, flags);
  if (shared && (flags & O_TRUNC) != 0) CACHESHIM_CHECK(stage_empty(*shared, fd.get()));
  CACHESHIM_TRY(handle, make_handle({std::move(fd), false, true, most_bytes_of(info.common)}, st,
                                    ref, *info.job, flags));
  handle->shared = std::move(shared);
  return handle;
}

// Creates a common file. Without O_EXCL, opens the file if another process has created it since the kernel's lookup, as
// open(2) does.
Result<Files::Created> Files::create_common(Job& job, NodeRef parent, const std::string& path,
                                            int flags) {
  const CommonKind kind = common_kind(mount_.entries, path);
  const bool is_staged = kind == CommonKind::kShared && wants_write(flags);
  auto made = create_lock(job.overlay, path,
                          (is_staged ? O_RDWR : backing_flags(flags)) | (flags & O_EXCL));
  // An object of another kind has the name. ESTALE makes the kernel look the name up again.
  if (made.failed_with(EEXIST) && (flags & O_EXCL) == 0) return Errno(ESTALE);
  if (!made) return made.error();
  CACHESHIM_TRY(st, sys::stat_fd(made->fd.get()));
  mount_.lock_removals.forget(job, st);
  CACHESHIM_TRY(object, sys::reopen(made->fd.get(), O_PATH));
  const DirectoryLookup lookup = mount_.timeouts.begin(job, std::string(parent_path(path)));
  CACHESHIM_TRY(entry, answers_.entry_of(job, parent, std::string(base_name(path)),
                                         {st, false, std::nullopt, std::move(object)}, lookup));
  auto shared = mount_.shared_files.make(path, kind, flags, made->is_new);
  const bool empties = shared && !made->is_new && (flags & O_TRUNC) != 0;
  if (empties) CACHESHIM_CHECK(stage_empty(*shared, made->fd.get()));
  CACHESHIM_TRY(handle, make_handle({std::move(made->fd), false, true, most_bytes_of(kind)}, st,
                                    decode(entry.ino), job, flags));
  handle->shared = std::move(shared);
  return Created(entry, std::move(handle));
}

OpenedFile Files::add_file(const Request& request, std::unique_ptr<FileHandle> handle,
                           Charge charge) {
  OpenedFile opened;
  // Passthrough writes bypass the page cache, so cached pages of an earlier open would become stale.
  opened.keep_cache = handle->keeps_pages && handle->backing_id == 0;
  opened.noflush = !handle->reports_close;
  opened.direct_io = handle->direct_io;
  opened.backing_id = handle->backing_id;
  mount_.shared_files.note_opened(*handle, request.caller.tid);
  mount_.publishing.rejections().note_opened(*handle, request.caller.tid);
  opened.fh = mount_.handles.add(std::move(handle), std::move(charge));
  return opened;
}

void Files::open(const Request& request, NodeId ino, int flags, OpenCompletion completion) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (info.kind == NodeKind::kObject && flight_requests_.may_be_placeholder(ref.node, info)) {
    return flight_requests_.wait_for_flight(request, ref, info, std::move(completion));
  }
  completion.complete(info.kind == NodeKind::kObject
                          ? open_object_file(request, ref, info, flags)
                          : own_tree_.open_own(request, ref, info, flags));
}

Result<OpenedFile> Files::open_object_file(const Request& request, NodeRef ref,
                                           const NodeInfo& info, int flags) {
  // ESTALE makes the kernel look the name up again; that lookup fails, because the damaged entry is in the trash.
  if (const auto gone = objects_.trash_if_damaged(ref); !gone.empty()) {
    mount_.invalidation.removed(gone);
    return Errno(ESTALE);
  }
  if (ChangeGuard::is_kept_from(request, info)) return Errno(EACCES);
  CACHESHIM_TRY(charge, mount_.charge(request.caller.uid, Limit::kHandles));
  CACHESHIM_TRY(handle, open_file(ref, *info.job, flags));
  const int fd = handle->fd.get();
  const OpenedFile opened = add_file(request, std::move(handle), std::move(charge));
  mount_.single_flight.note_open(request.caller, *info.job, ref.node);
  const bool truncates = (flags & O_TRUNC) != 0;
  if (const auto dropped = truncates ? data_.drop_privileges(request, ref, fd) : Status();
      !dropped) {
    release(opened.fh);
    return dropped.error();
  }
  return opened;
}

Result<Files::Created> Files::create_file(NodeRef parent, const std::string& name,
                                          const NewObject& wanted, int flags) {
  CACHESHIM_TRY(info, objects_.view_directory(parent));
  Job& job = *info.job;
  return objects_.change_names(job, [&](Hold hold) -> Result<Created> {
    job.overlay.mutex().assert_held_shared();
    CACHESHIM_TRY(path, objects_.child_path(job, parent, name));
    if (hold == Hold::kShared && !changes::makes_shared(job.overlay, path))
      return Errno(kNeedsExclusive);
    if (job.overlay.locks().files.is_shared_name(path))
      return create_common(job, parent, path, flags);
    Result<UniqueFd> fd = changes::create_file(job.overlay, path, backing_flags(flags), wanted);
    // Another process has created the file since the kernel's lookup. ESTALE makes the kernel look it up and check
    // access.
    if (fd.failed_with(EEXIST) && (flags & O_EXCL) == 0) return Errno(ESTALE);
    if (!fd) return fd.error();
    CACHESHIM_TRY(st, sys::stat_fd(fd->get()));
    const DirectoryLookup lookup = mount_.timeouts.begin(job, std::string(parent_path(path)));
    mount_.nodes.names().detach_stale(parent.node, name, st);
    CACHESHIM_TRY(entry, answers_.entry_of(job, parent, name, {st, true, {}}, lookup));
    const NodeRef ref = decode(entry.ino);
    mount_.nodes.state(ref.node).set_lacks_capabilities(true);
    CACHESHIM_TRY(handle, make_handle({*std::move(fd), true}, st, ref, job, flags));
    if (handle->may_be_mapped_for_writing()) entry.attr_timeout = 0;
    mount_.publishing.note_built(job, path);
    return Created(entry, std::move(handle));
  });
}

// For O_TMPFILE: makes a node in the same state as a node that has lost its name.
Result<Files::Created> Files::create_tmpfile(const Request& request, NodeRef parent, mode_t mode,
                                             int flags) {
  CACHESHIM_TRY(info, objects_.view_directory(parent));
  CACHESHIM_TRY(charge, mount_.charge(request.caller.uid, Limit::kHandles));
  const WriterLock lock(info.job->overlay.mutex());
  CACHESHIM_CHECK(info.job->ensure_layer(mount_.store.layers()));
  CACHESHIM_TRY(directory, mount_.nodes.path(parent.node));
  CACHESHIM_TRY(fd,
                changes::make_tmpfile(info.job->overlay, directory, backing_flags(flags),
                                      new_object(mount_.options.owners, request, mode)));
  CACHESHIM_TRY(object, sys::reopen(fd.get(), O_PATH));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  const NodeRef ref{
      mount_.nodes.intern_nameless(info.job, st, {std::move(object), std::move(charge)}),
      parent.slot};
  Entry entry{};
  entry.ino = encode(ref);
  CACHESHIM_TRY(shown, answers_.show(ref, mount_.nodes.info(ref.node), st, true));
  entry.attr = shown;
  CACHESHIM_TRY(handle, make_handle({std::move(fd), true}, st, ref, *info.job, flags));
  return Created(entry, std::move(handle));
}

Result<CreatedFile> Files::create(const Request& request, NodeId parent, const char* name,
                                  mode_t mode, int flags) {
  if (ChangeGuard::is_kept_from(request, mount_.nodes.info(decode(parent).node)))
    return Errno(EACCES);
  CACHESHIM_TRY(charge, mount_.charge(request.caller.uid, Limit::kHandles));
  CACHESHIM_TRY(created,
                create_file(decode(parent), name,
                            new_object(mount_.options.owners, request, mode & 07777), flags));
  if ((flags & O_EXCL) != 0) mount_.batons.note_made(*created.second, request.caller.tid);
  flight_requests_.note_step(decode(parent), name);
  return CreatedFile{created.first,
                     add_file(request, std::move(created.second), std::move(charge))};
}

Result<CreatedFile> Files::tmpfile(const Request& request, NodeId parent, mode_t mode, int flags) {
  CACHESHIM_TRY(charge, mount_.charge(request.caller.uid, Limit::kHandles));
  CACHESHIM_TRY(created, create_tmpfile(request, decode(parent), mode & 07777, flags));
  return CreatedFile{created.first,
                     add_file(request, std::move(created.second), std::move(charge))};
}

// Call when the last descriptor is closed and no more writes can follow.
void Files::end_writing(FileHandle& handle) {
  Job& job = *handle.job;
  job.unsettled
      .begin_publishing();  // before remove_writer(): UnsettledWrites::wait() must see no gap
  job.unsettled.remove_writer(handle.device, handle.inode);
  mount_.publishing.retry_postponed(job);
  const Result<std::string> path = [&]() -> Result<std::string> {
    const ReaderLock lock(job.overlay.mutex());
    return mount_.nodes.path(handle.node);
  }();
  if (path) mount_.publishing.completed(job, *path, Arrival::kClosed, {{}, [] {}});
  job.unsettled.end_publishing();
}

void Files::release(std::uint64_t fh) {
  if (FileHandle* handle = mount_.handles.file(fh)) {
    lock_requests_.release_locks(*handle, fh);
    mount_.open_files.remove(handle->node, handle->place);
    mount_.shared_files.released(*handle);
    if (handle->backing_id != 0) mount_.layer_meter.silent_growth().remove(*handle);
    // Closes the file first: during end_writing(), the daemon itself must not have it open for writing.
    handle->fd.reset();
    mount_.io_modes.close(encode({handle->node, handle->slot}));
    if (handle->counts_as_writer) end_writing(*handle);
    if (!handle->reports_close) mount_.nodes.state(handle->node).remove_silent_handle();
    --handle->job->use.open_files;
    handle->job->use.touch();
  } else if (const auto* control = std::get_if<ControlHandle>(mount_.handles.find(fh))) {
    control->session->close();
  }
  mount_.handles.remove(fh);
}

}  // namespace cacheshim
