// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "common/direct_page.h"
#include "fuse/nodes/open_flags.h"
#include "fuse/transport/ring_loop.h"
#include "fuse/transport/wire.h"
#include "fuse/vfs/filesystem.h"
#include "fuse/vfs/set_ids.h"
#include "fuse/vfs/timeouts.h"
#include "store/sys/sys.h"

// Open files. Reads take no lock; a write holds the overlay's mutex shared, so that publishing, which
// holds it exclusively, finds no write under way in a file that it hands to the base.
namespace cacheshim {
namespace {

// From there on the copy of each page costs more than a backing file of the kernel's.
constexpr off_t kLargeFile = 256 * 1024;

// Data of so many bytes are not copied by us; of less, two more system calls cost more than that.
constexpr std::size_t kSpliceFrom = std::size_t{64} * 1024;

// fcntl(F_SETFL) may clear these on the caller's file. The kernel opens the backing file with the flags of
// open(2), and reads and writes it with them for as long as it is open.
constexpr int kFlagsOfBackingFile = O_APPEND | O_DIRECT | O_NOATIME;

// Whether the handle allows a mapping, through which the kernel then writes without the daemon.
bool may_be_mapped_for_writing(const FileHandle& handle) {
  return handle.backing_id != 0 && handle.access == O_RDWR;
}

void reply_text(void* request, const Result<std::string_view>& text) {
  auto* const req = static_cast<fuse_req_t>(request);
  (void)(text ? fuse_reply_buf(req, text->data(), text->size())
              : fuse_reply_err(req, text.error().code()));
}

void reply_size(fuse_req_t req, const Result<std::size_t>& size) {
  if (size) {
    (void)fuse_reply_write(req, *size);
  } else {
    (void)fuse_reply_err(req, size.error().code());
  }
}

}  // namespace

Result<std::unique_ptr<FileHandle>> Filesystem::make_handle(Opened opened, const struct stat& st,
                                                            NodeRef ref, Job* job, int flags) {
  auto handle = std::make_unique<FileHandle>();
  handle->fd = std::move(opened.fd);
  handle->node = ref.node;
  handle->slot = ref.slot;
  handle->job = job;
  handle->in_upper = opened.in_upper;
  handle->access = flags & O_ACCMODE;
  handle->follow_noatime(flags);
  handle->writable = handle->access != O_RDONLY;
  handle->epoch = nodes_.epoch(ref.node);
  handle->device = st.st_dev;
  handle->inode = st.st_ino;
  handle->is_lock_file = opened.is_lock;
  handle->is_shared_file = opened.is_lock && opened.most_bytes != kMostLockBytes;
  handle->most_bytes = opened.most_bytes;
  CACHESHIM_CHECK(choose_io(*handle, st, flags));
  nodes_.count_silent_handle(ref.node, true);  // first: see node_table_locks.cc
  handle->tells_close = opened.is_lock || tells_of_close(ref.node, flags);
  if (handle->tells_close) nodes_.count_silent_handle(ref.node, false);
  handle->counts_as_writer = !opened.is_lock && (handle->writable || handle->backing_id != 0);
  if (handle->counts_as_writer) job->add_writer(st.st_dev, st.st_ino);
  ++job->open_files;
  open_files_.add(ref.node, handle->fd.get());
  (handle->in_upper ? counters_.opens_layer : counters_.opens_base)
      .fetch_add(1, std::memory_order_relaxed);
  return handle;
}

// Whether the kernel reads and writes the file by itself: what is the layer's own, and stays that as
// long as it is open. Of a job that may publish, what is only written to: a mapping would hold the
// entry back for as long as it lasts. Not where other views show the file too, which are told of what
// is written, and not where a write would have to clear a capability, which we would not see.
Status Filesystem::choose_io(FileHandle& handle, const struct stat& st, int flags) {
  const bool keeps_flags = (flags & kFlagsOfBackingFile) != 0;
  const bool is_worth_it = handle.job->may_publish() ? handle.access == O_WRONLY
                                                     : handle.writable || st.st_size >= kLargeFile;
  const bool wanted = handle.in_upper && is_worth_it && !keeps_flags &&
                      !handle.job->shares_uids() &&
                      (!options_.owners.keep || nodes_.lacks_capabilities(handle.node));
  CACHESHIM_TRY(backing_id, io_modes_.open(encode({handle.node, handle.slot}),
                                           {.fd = handle.fd.get(),
                                            .st = st,
                                            .wanted = wanted,
                                            .readable = handle.access != O_WRONLY,
                                            .writable = handle.writable}));
  handle.backing_id = backing_id;
  // Lock files others write to as well. With a backing file, which other handles of the inode have asked for,
  // FOPEN_DIRECT_IO still brings reads and writes to us.
  handle.direct_io = handle.is_lock_file || (keeps_flags && backing_id != 0);
  // A write through a mapping would not update what the kernel has cached so far.
  if (may_be_mapped_for_writing(handle)) {
    notifier_->tell_attributes({encode({handle.node, handle.slot})});
  }
  return {};
}

Result<std::unique_ptr<FileHandle>> Filesystem::open_writable(NodeRef ref, Job& job, int flags) {
  CACHESHIM_TRY(prepared, prepare_change(ref.node, (flags & O_TRUNC) != 0 ? 0 : kWholeFile));
  const std::unique_lock lock(job.overlay.mutex());
  const bool was_removed = nodes_.info(ref.node).removed;
  CACHESHIM_CHECK(settle_name(ref.node));
  if (!was_removed && nodes_.info(ref.node).removed) return Errno(ESTALE);
  if (nodes_.info(ref.node).removed) {
    CACHESHIM_CHECK(own_removed(ref.node));
    return open_removed(ref, nodes_.info(ref.node), flags);
  }
  CACHESHIM_CHECK(job.ensure_layer(store_.layers()));
  CACHESHIM_TRY(path, nodes_.path(ref.node));
  CACHESHIM_TRY(fd, job.overlay.open_writable(path, backing_flags(flags)));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  return make_handle({std::move(fd), true}, st, ref, &job, flags);
}

// Eviction goes by access times, and the kernel sets none for pages that it has already, nor where the
// store's file system is mounted noatime.
void Filesystem::note_use(int fd, const struct stat& st, int flags) const {
  if ((flags & O_NOATIME) != 0) return;
  const std::time_t used = std::max(st.st_atime, st.st_mtime);
  if (options_.store_dir.empty() || used >= std::time(nullptr) - kUseGrainSeconds) return;
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  (void)sys::set_times(fd, times);  // of a base that we may only read
}

Result<std::unique_ptr<FileHandle>> Filesystem::open_readable(NodeRef ref, Job& job, int flags) {
  const NodeInfo info = nodes_.info(ref.node);
  if (info.removed) return open_removed(ref, info, flags);
  CACHESHIM_TRY(path, nodes_.path(ref.node));
  Result<Opened> opened = job.overlay.open(path, O_RDONLY);
  if (opened.failed_with(ENOENT)) return Errno(ESTALE);  // the kernel looks the name up again
  if (!opened) return opened.error();
  CACHESHIM_TRY(st, sys::stat_fd(opened->fd.get()));
  if (!nodes_.is_current(ref.node, st, opened->in_upper)) return Errno(ESTALE);
  if (!opened->in_upper) note_use(opened->fd.get(), st, flags);
  const bool keeps_pages = opened->in_upper || nodes_.has_same_data(ref.node, st);
  CACHESHIM_TRY(handle, make_handle(*std::move(opened), st, ref, &job, flags));
  handle->keeps_pages = keeps_pages;
  return handle;
}

Result<std::unique_ptr<FileHandle>> Filesystem::open_file(NodeRef ref, Job& job, int flags) {
  job.touch();
  const NodeInfo info = nodes_.info(ref.node);
  if (is_outdated(info)) return Errno(ESTALE);
  if (info.common != Common::kNone) return open_common(ref, info, flags);
  if (wants_write(flags)) return open_writable(ref, job, flags);
  auto opened = look_by_path(job.overlay, [&] { return open_readable(ref, job, flags); });
  if (opened.failed_with(ESTALE) && open_files_.has(ref.node)) {
    // The open goes through /proc, and the kernel asks again, or by a name, which it then looks up again.
    const std::unique_lock lock(job.overlay.mutex());
    (void)settle_name(ref.node);  // this open still fails with ESTALE
  }
  return opened;
}

void Filesystem::open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = nodes_.info(ref.node);
  if (info.kind != NodeKind::kObject) return open_own(req, ref, info, fi);
  if (may_be_placeholder(ref.node, info)) return wait_for_flight(req, ref, info);
  // The kernel looks the name up again, which misses it.
  if (const auto gone = put_damaged_away(ref); !gone.empty()) {
    tell_of_gone(gone);
    return (void)fuse_reply_err(req, ESTALE);
  }
  if (is_kept_from(req, info)) return (void)fuse_reply_err(req, EACCES);
  Result<std::unique_ptr<FileHandle>> handle = open_file(ref, *info.job, fi->flags);
  if (!handle) return (void)fuse_reply_err(req, handle.error().code());
  // Pages that an earlier open has left would be those of before what now goes past them.
  fi->keep_cache = (*handle)->keeps_pages && (*handle)->backing_id == 0;
  wire::pass_through((*handle)->backing_id);
  const int fd = (*handle)->fd.get();
  fi->noflush = !(*handle)->tells_close;
  fi->direct_io = (*handle)->direct_io;
  note_shared(**handle, fuse_req_ctx(req)->pid);
  rejections_.note_opened(**handle, fuse_req_ctx(req)->pid);
  note_open_for_flights(req, *info.job, ref.node);
  fi->fh = handles_.add(*std::move(handle));
  const bool truncates = (fi->flags & O_TRUNC) != 0;
  if (const auto dropped = truncates ? drop_privileges(req, ref, fd) : Status(); !dropped) {
    release(nullptr, fi);
    return (void)fuse_reply_err(req, dropped.error().code());
  }
  if (fuse_reply_open(req, fi) == -ENOENT) release(nullptr, fi);  // interrupted: nobody has it
}

void Filesystem::open_own(fuse_req_t req, NodeRef ref, const NodeInfo& info, fuse_file_info* fi) {
  if (info.kind == NodeKind::kControlFile && nodes_.name(ref.node) == "control") {
    auto session = std::make_shared<ControlSession>();
    ticker_->watch(session);
    fi->fh = handles_.add(ControlHandle{std::move(session)});
  } else {
    if (wants_write(fi->flags)) return (void)fuse_reply_err(req, EACCES);
    fi->fh = handles_.add(TextHandle{text_of(ref.node, info)});
  }
  fi->direct_io = 1;  // the size in stat is 0: it is made at open
  if (fuse_reply_open(req, fi) == -ENOENT) release(nullptr, fi);
}

Result<Filesystem::Created> Filesystem::create_file(NodeRef parent, const std::string& name,
                                                    const NewObject& wanted, int flags) {
  CACHESHIM_TRY(info, view_folder(parent));
  Overlay& overlay = info.job->overlay;
  return change_names(*info.job, [&](Hold hold) -> Result<Created> {
    CACHESHIM_TRY(path, child_path(parent, name));
    if (hold == Hold::kShared && !overlay.makes_shared(path)) return Errno(kNeedsExclusive);
    if (overlay.is_shared_lock_name(path)) return create_common(parent, info, path, flags);
    Result<UniqueFd> fd = overlay.create_file(path, backing_flags(flags), wanted);
    // Published, or made in another view of this layer, since the kernel looked. It looks again then,
    // and checks whether this caller may open what is there.
    if (fd.failed_with(EEXIST) && (flags & O_EXCL) == 0) return Errno(ESTALE);
    if (!fd) return fd.error();
    CACHESHIM_TRY(st, sys::stat_fd(fd->get()));
    const Look look = begin_look(*info.job, std::string(parent_path(path)));
    nodes_.part(parent.node, name, st);
    CACHESHIM_TRY(entry, entry_of(parent, info, name, {st, true, {}}, look));
    const NodeRef ref = decode(entry.ino);
    nodes_.set_lacks_capabilities(ref.node, true);
    CACHESHIM_TRY(handle, make_handle({*std::move(fd), true}, st, ref, info.job, flags));
    if (may_be_mapped_for_writing(*handle)) entry.attr_timeout = 0;
    note_built(*info.job, path);
    return Created(entry, std::move(handle));
  });
}

// O_TMPFILE: the node is one that has lost its name from the start.
Result<Filesystem::Created> Filesystem::create_tmpfile(NodeRef parent, const NewObject& wanted,
                                                       int flags) {
  CACHESHIM_TRY(info, view_folder(parent));
  Overlay& overlay = info.job->overlay;
  const std::unique_lock lock(overlay.mutex());
  CACHESHIM_CHECK(info.job->ensure_layer(store_.layers()));
  CACHESHIM_TRY(folder, nodes_.path(parent.node));
  CACHESHIM_TRY(fd, overlay.make_tmpfile(folder, backing_flags(flags), wanted));
  CACHESHIM_TRY(object, sys::reopen(fd.get(), O_PATH));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  const NodeRef ref{nodes_.intern_nameless(info.job, st, std::move(object)), parent.slot};
  fuse_entry_param entry{};
  entry.ino = encode(ref);
  CACHESHIM_TRY(shown, show(ref, nodes_.info(ref.node), st, true));
  entry.attr = shown;
  CACHESHIM_TRY(handle, make_handle({std::move(fd), true}, st, ref, info.job, flags));
  return Created(entry, std::move(handle));
}

void Filesystem::reply_created(fuse_req_t req, Result<Created> created, fuse_file_info* fi) {
  if (!created) return (void)fuse_reply_err(req, created.error().code());
  auto& [entry, handle] = *created;
  fi->keep_cache = handle->backing_id == 0;
  wire::pass_through(handle->backing_id);
  fi->noflush = !handle->tells_close;
  fi->direct_io = handle->direct_io;
  note_shared(*handle, fuse_req_ctx(req)->pid);
  rejections_.note_opened(*handle, fuse_req_ctx(req)->pid);
  fi->fh = handles_.add(std::move(handle));
  if (fuse_reply_create(req, &entry, fi) == -ENOENT) {
    release(nullptr, fi);
    nodes_.forget(decode(entry.ino).node, 1);
  }
}

void Filesystem::create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
                        fuse_file_info* fi) {
  if (is_kept_from(req, nodes_.info(decode(parent).node))) {
    return (void)fuse_reply_err(req, EACCES);
  }
  auto created = create_file(decode(parent), name, new_object(req, mode & 07777), fi->flags);
  if (created && (fi->flags & O_EXCL) != 0) note_baton(req, *created->second);
  if (created) note_step(decode(parent), name);
  reply_created(req, std::move(created), fi);
}

void Filesystem::tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, fuse_file_info* fi) {
  reply_created(req, create_tmpfile(decode(parent), new_object(req, mode & 07777), fi->flags), fi);
}

// Opens the file again where its data have moved since: into the layer by copy-up, or, for a handle
// that is about to be written to, out of it by publishing. Errors: ESTALE if the data can only be reached
// through the handle's own descriptor.
Status Filesystem::refresh(FileHandle& handle) {
  const std::uint32_t epoch = nodes_.epoch(handle.node);
  if (handle.epoch == epoch) return {};
  if (handle.writable) {  // Overlay::mutex() is held exclusively
    CACHESHIM_CHECK(settle_name(handle.node));
    if (nodes_.info(handle.node).removed) CACHESHIM_CHECK(own_removed(handle.node));
  }
  const NodeInfo info = nodes_.info(handle.node);
  CACHESHIM_TRY(fd, [&]() -> Result<UniqueFd> {
    if (info.removed && info.object_fd() < 0) return Errno(ESTALE);
    if (info.removed) return sys::reopen(info.object_fd(), handle.access);
    CACHESHIM_TRY(path, nodes_.path(handle.node));
    if (handle.writable) return handle.job->overlay.open_writable(path, handle.access);
    auto opened = handle.job->overlay.open(path, handle.access);
    if (opened.failed_with(ENOENT)) return Errno(ESTALE);
    if (!opened) return opened.error();
    CACHESHIM_TRY(st, sys::stat_fd(opened->fd.get()));
    if (!nodes_.is_current(handle.node, st, opened->in_upper)) return Errno(ESTALE);
    return std::move(opened->fd);
  }());
  if (handle.has_noatime) set_noatime(fd.get(), true);
  if (::dup3(fd.get(), handle.fd.get(), O_CLOEXEC) == -1) return Errno::last();
  handle.epoch = epoch;
  return {};
}

// A writable handle is refreshed by what it writes. A file that no longer has a name is read to its end through
// the handle's descriptor.
Status Filesystem::refresh_for_reading(FileHandle& handle) {
  const std::uint32_t epoch = nodes_.epoch(handle.node);
  if (handle.writable || handle.epoch == epoch) return {};
  const Status fresh = look_by_path(handle.job->overlay, [&] { return refresh(handle); });
  if (!fresh.failed_with(ESTALE)) return fresh;
  handle.epoch = epoch;
  return {};
}

void Filesystem::read(fuse_req_t req, std::size_t size, off_t offset, fuse_file_info* fi) {
  Handle& any = handles_.get(fi->fh);
  if (const auto* control = std::get_if<ControlHandle>(&any))
    return control->session->read({req, reply_text}, size);
  if (const auto* text = std::get_if<TextHandle>(&any)) {
    const std::string_view all = text->text;
    const auto part = all.substr(std::min(all.size(), static_cast<std::size_t>(offset)), size);
    return (void)fuse_reply_buf(req, part.data(), part.size());
  }
  FileHandle* const file = handles_.file(fi->fh);
  if (file == nullptr) return (void)fuse_reply_err(req, EBADF);
  FileHandle& handle = *file;
  if (const Status fresh = refresh_for_reading(handle); !fresh) {
    return (void)fuse_reply_err(req, fresh.error().code());
  }
  handle.follow_noatime(fi->flags);
  if (size >= kSpliceFrom && !is_asked_by_rings_) {
    fuse_bufvec bytes{};
    bytes.count = 1;
    bytes.buf[0].size = size;
    bytes.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
    bytes.buf[0].fd = handle.fd.get();
    bytes.buf[0].pos = offset;
    // Not FUSE_BUF_SPLICE_MOVE: it would take the pages away from the base's own page cache.
    return (void)fuse_reply_data(req, &bytes, fuse_buf_copy_flags{});
  }
  thread_local std::vector<char> buffer;
  char* bytes = RingLoop::answer_space(size);
  if (bytes == nullptr) {
    if (buffer.size() < size) buffer.resize(size);
    bytes = buffer.data();
  }
  const ssize_t count = ::pread(handle.fd.get(), bytes, size, offset);
  if (count == -1) return (void)fuse_reply_err(req, errno);
  (void)fuse_reply_buf(req, bytes, static_cast<std::size_t>(count));
}

Result<std::size_t> Filesystem::change_data(
    FileHandle& handle, const std::function<Result<std::size_t>(int fd)>& change) {
  if (handle.shared) return change_shared(handle, change);
  Overlay& overlay = handle.job->overlay;
  for (;;) {
    {
      const std::shared_lock lock(overlay.mutex());
      if (handle.epoch == nodes_.epoch(handle.node)) {
        const auto changed = change(handle.fd.get());
        tell_other_views(*handle.job, handle.node, handle.slot);
        return changed;
      }
    }
    CACHESHIM_TRY(prepared, prepare_change(handle.node));
    const std::unique_lock lock(overlay.mutex());
    CACHESHIM_CHECK(handle.job->ensure_layer(store_.layers()));
    CACHESHIM_CHECK(refresh(handle));
  }
}

void Filesystem::write(fuse_req_t req, const char* data, std::size_t size, off_t offset,
                       fuse_file_info* fi) {
  if (const auto* control = std::get_if<ControlHandle>(&handles_.get(fi->fh))) {
    const Status taken =
        control->session->submit(*this, caller_of(req), {data, size}, control->session);
    return (void)(taken ? fuse_reply_write(req, size) : fuse_reply_err(req, taken.error().code()));
  }
  FileHandle* const handle = handles_.file(fi->fh);
  if (handle == nullptr) return (void)fuse_reply_err(req, EBADF);
  const bool kills_set_ids = wire::kills_set_ids();
  if (handle->is_lock_file && offset > handle->most_bytes - static_cast<off_t>(size)) {
    return (void)fuse_reply_err(req, EFBIG);
  }
  reply_size(
      req, change_data(*handle, [&](int fd) -> Result<std::size_t> {
        if (kills_set_ids) CACHESHIM_CHECK(drop_privileges(req, {handle->node, handle->slot}, fd));
        off_t at = offset;
        if (handle->shared && (fi->flags & O_APPEND) != 0) {  // the kernel knows the base's size
          CACHESHIM_TRY(st, sys::stat_fd(fd));
          at = st.st_size;
        }
        const ssize_t count = ::pwrite(fd, data, size, at);
        if (count == -1) return Errno::last();
        return static_cast<std::size_t>(count);
      }));
}

// The last descriptor is closed: what was written in place is as it will be.
void Filesystem::end_writing(FileHandle& handle) {
  Job& job = *handle.job;
  job.begin_publishing();  // so that who waits for the job sees no gap between the two
  job.remove_writer(handle.device, handle.inode);
  retry_postponed(job);
  const Result<std::string> path = [&]() -> Result<std::string> {
    const std::shared_lock lock(job.overlay.mutex());
    return nodes_.path(handle.node);
  }();
  if (path) publish_completed(job, *path, Arrival::kClosed, {}, [] {});
  job.end_publishing();
}

void Filesystem::release(fuse_req_t req, fuse_file_info* fi) {
  if (FileHandle* handle = handles_.file(fi->fh)) {
    release_locks(*handle, fi->fh);
    forget_shared(*handle);
    open_files_.remove(handle->node, handle->fd.get());
    if (handle->shared) end_shared(*handle);
    // Before all else, so that nothing of ours holds the file open for writing when it is to be published.
    handle->fd.reset();
    io_modes_.close(encode({handle->node, handle->slot}));
    if (handle->counts_as_writer) end_writing(*handle);
    if (!handle->tells_close) nodes_.count_silent_handle(handle->node, false);
    --handle->job->open_files;
    handle->job->touch();
  } else if (const auto* control = std::get_if<ControlHandle>(&handles_.get(fi->fh))) {
    control->session->close();
  }
  handles_.remove(fi->fh);
  if (req != nullptr) (void)fuse_reply_err(req, 0);
}

void Filesystem::fsync(fuse_req_t req, int datasync, fuse_file_info* fi) {
  FileHandle* const handle = handles_.file(fi->fh);
  if (handle == nullptr) return (void)fuse_reply_err(req, EINVAL);
  if (const Status fresh = refresh_for_reading(*handle); !fresh) {
    return (void)fuse_reply_err(req, fresh.error().code());
  }
  (void)handle->job->overlay.sync_records();  // at worst a copy is shown with its own inode number
  const int fd = handle->fd.get();
  const int rc = datasync != 0 ? ::fdatasync(fd) : ::fsync(fd);
  (void)fuse_reply_err(req, rc == 0 ? 0 : errno);
}

void Filesystem::fallocate(fuse_req_t req, int mode, off_t offset, off_t length,
                           fuse_file_info* fi) {
  FileHandle* const handle = handles_.file(fi->fh);
  if (handle == nullptr) return (void)fuse_reply_err(req, EBADF);
  if (handle->is_lock_file && offset > handle->most_bytes - length) {
    return (void)fuse_reply_err(req, EFBIG);
  }
  const auto done = change_data(*handle, [&](int fd) -> Result<std::size_t> {
    if (::fallocate(fd, mode, offset, length) == -1) return Errno::last();
    return std::size_t{0};
  });
  (void)fuse_reply_err(req, done ? 0 : done.error().code());
}

void Filesystem::lseek(fuse_req_t req, off_t offset, int whence, fuse_file_info* fi) {
  FileHandle* const handle = handles_.file(fi->fh);
  if (handle == nullptr) return (void)fuse_reply_err(req, EINVAL);
  if (const Status fresh = refresh_for_reading(*handle); !fresh) {
    return (void)fuse_reply_err(req, fresh.error().code());
  }
  const off_t at = ::lseek(handle->fd.get(), offset, whence);
  (void)(at == -1 ? fuse_reply_err(req, errno) : fuse_reply_lseek(req, at));
}

void Filesystem::copy_file_range(fuse_req_t req, off_t in, fuse_file_info* fi_in, off_t out,
                                 fuse_file_info* fi_out, std::size_t length) {
  FileHandle* const source = handles_.file(fi_in->fh);
  FileHandle* const target = handles_.file(fi_out->fh);
  if (source == nullptr || target == nullptr) return (void)fuse_reply_err(req, EXDEV);
  if (const Status fresh = refresh_for_reading(*source); !fresh) {
    return (void)fuse_reply_err(req, fresh.error().code());
  }
  if (target->is_lock_file) {
    const auto st = sys::stat_fd(source->fd.get());
    const off_t left = st ? std::max<off_t>(st->st_size - in, 0) : 0;
    const off_t wanted = std::min<off_t>(static_cast<off_t>(length), left);
    if (out > target->most_bytes - wanted) return (void)fuse_reply_err(req, EFBIG);
  }
  reply_size(req, change_data(*target, [&](int fd) -> Result<std::size_t> {
               const ssize_t count = ::copy_file_range(source->fd.get(), &in, fd, &out, length, 0);
               if (count == -1) return Errno::last();
               return static_cast<std::size_t>(count);
             }));
}

}  // namespace cacheshim
