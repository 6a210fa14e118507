// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/file_data.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "fuse/nodes/open_flags.h"
#include "fuse/vfs/set_ids.h"
#include "store/overlay/copy_up.h"
#include "store/overlay/layer_upkeep.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

Status replace_descriptor(FileHandle& handle, int fd, std::uint32_t epoch) {
  if (handle.has_noatime) set_noatime(fd, true);
  if (::dup3(fd, handle.fd.get(), O_CLOEXEC) == -1) return Errno::last();
  handle.epoch = epoch;
  return {};
}

}  // namespace

Result<UniqueFd> FileData::reopen_for_writing(const FileHandle& handle) {
  CACHESHIM_CHECK(objects_.settle_name(*handle.job, handle.node));
  if (mount_.nodes.info(handle.node).removed)
    CACHESHIM_CHECK(objects_.own_removed(*handle.job, handle.node));
  const NodeInfo info = mount_.nodes.info(handle.node);
  if (info.removed) return reopen_removed(info, handle.access);
  CACHESHIM_TRY(path, mount_.nodes.path(handle.node));
  return cacheshim::open_writable(handle.job->overlay, path, handle.access);
}

Result<UniqueFd> FileData::reopen_for_reading(const FileHandle& handle) const {
  const NodeInfo info = mount_.nodes.info(handle.node);
  if (info.removed) return reopen_removed(info, handle.access);
  CACHESHIM_TRY(found, objects_.open_named(*handle.job, handle.node, handle.access));
  return std::move(found.opened.fd);
}

// Refreshes a handle that is open only for reading; change_data() refreshes handles that are open for writing. If only
// the handle's own descriptor still leads to the file (ESTALE), reads keep using that descriptor.
Status FileData::refresh_for_reading(FileHandle& handle) {
  const std::uint32_t epoch = mount_.nodes.state(handle.node).epoch();
  if (handle.writable || handle.epoch == epoch) return {};
  const Status fresh = Objects::find_by_path(handle.job->overlay, [&]() -> Status {
    handle.job->overlay.mutex().assert_held_shared();
    const std::uint32_t now = mount_.nodes.state(handle.node).epoch();
    CACHESHIM_TRY(fd, reopen_for_reading(handle));
    return replace_descriptor(handle, fd.get(), now);
  });
  if (!fresh.failed_with(ESTALE)) return fresh;
  handle.epoch = epoch;
  return {};
}

Result<ReadSource> FileData::read(const OpenFlags& open) {
  Handle* const any = mount_.handles.find(open.fh);
  if (const auto* control = std::get_if<ControlHandle>(any))
    return ReadSource{.control = control->session, .text = {}};
  if (const auto* text = std::get_if<TextHandle>(any))
    return ReadSource{.control = nullptr, .text = text->text};
  FileHandle* const handle = mount_.handles.file(open.fh);
  if (handle == nullptr) return Errno(EBADF);
  CACHESHIM_CHECK(refresh_for_reading(*handle));
  handle->follow_noatime(open.flags);
  return ReadSource{.control = nullptr, .text = {}, .fd = handle->fd.get()};
}

Result<std::size_t> FileData::change_data(
    FileHandle& handle, const std::function<Result<std::size_t>(int fd)>& change) {
  if (handle.shared) return SharedFiles::change(handle, change);
  for (;;) {
    {
      const ReaderLock lock(handle.job->overlay.mutex());
      if (handle.epoch == mount_.nodes.state(handle.node).epoch()) {
        const auto changed = change(handle.fd.get());
        mount_.invalidation.data_changed(*handle.job, handle.node, handle.slot);
        return changed;
      }
    }
    CACHESHIM_TRY(prepared, objects_.prepare_change(handle.node));
    const WriterLock lock(handle.job->overlay.mutex());
    CACHESHIM_CHECK(handle.job->ensure_layer(mount_.store.layers()));
    const std::uint32_t epoch = mount_.nodes.state(handle.node).epoch();
    if (handle.epoch == epoch) continue;
    CACHESHIM_TRY(fd, reopen_for_writing(handle));
    CACHESHIM_CHECK(replace_descriptor(handle, fd.get(), epoch));
  }
}

// Call before writing `length` bytes to the layer: charges the layer's growth. If there is no room, still allows
// overwriting bytes that a file without holes already has. Does not charge for lock files, which belong to the base.
Status FileData::pay_for(const FileHandle& handle, off_t offset, std::uint64_t length) const {
  constexpr off_t kBlock = 512;  // the unit of st_blocks
  if (handle.is_lock_file) return {};
  const Status paid = handle.job->grow(length);
  if (paid) return {};
  const auto st = sys::stat_fd(handle.fd.get());
  const bool has_holes = !st || st->st_blocks * kBlock < st->st_size;
  if (has_holes || offset > st->st_size - static_cast<off_t>(length)) return paid;
  return {};
}

Result<std::size_t> FileData::write(const Request& request, const OpenFlags& open,
                                    std::string_view data, off_t offset) {
  if (const auto* control = std::get_if<ControlHandle>(mount_.handles.find(open.fh))) {
    CACHESHIM_CHECK(own_tree_.control().submit(control->session, request.caller, data));
    return data.size();
  }
  FileHandle* const handle = mount_.handles.file(open.fh);
  if (handle == nullptr) return Errno(EBADF);
  if (handle->is_lock_file && offset > handle->most_bytes - static_cast<off_t>(data.size())) {
    return Errno(EFBIG);
  }
  CACHESHIM_CHECK(pay_for(*handle, offset, data.size()));
  return change_data(*handle, [&](int fd) -> Result<std::size_t> {
    if (request.kills_set_ids) {
      CACHESHIM_CHECK(drop_privileges(request, {handle->node, handle->slot}, fd));
    }
    off_t at = offset;
    if (handle->shared &&
        (open.flags & O_APPEND) != 0) {  // the kernel's offset is the size of the base's file
      CACHESHIM_TRY(st, sys::stat_fd(fd));
      at = st.st_size;
    }
    const ssize_t count = ::pwrite(fd, data.data(), data.size(), at);
    if (count == -1) return Errno::last();
    return static_cast<std::size_t>(count);
  });
}

Status FileData::drop_privileges(const Request& request, NodeRef ref, int fd) {
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  if ((st.st_mode & (S_ISUID | S_ISGID)) != 0) {
    CACHESHIM_TRY(shown, answers_.show(ref, mount_.nodes.info(ref.node), st, true));
    CACHESHIM_CHECK(drop_set_ids(request.caller, fd, shown));
  }
  if (!mount_.options.owners.keep || mount_.nodes.state(ref.node).lacks_capabilities()) return {};
  const Status removed = sys::remove_xattr(fd, kCapability);
  if (removed || removed.failed_with(EOPNOTSUPP)) return {};
  return removed.failed_with(ENODATA) ? Status() : removed;
}

Status FileData::fsync(std::uint64_t fh, bool is_data_alone) {
  FileHandle* const handle = mount_.handles.file(fh);
  if (handle == nullptr) return Errno(EINVAL);
  CACHESHIM_CHECK(refresh_for_reading(*handle));
  (void)sync_records(
      handle->job->overlay);  // if this fails, a copied-up object may show a new inode number later
  const int fd = handle->fd.get();
  if ((is_data_alone ? ::fdatasync(fd) : ::fsync(fd)) == -1) return Errno::last();
  return {};
}

Status FileData::fallocate(std::uint64_t fh, int mode, off_t offset, off_t length) {
  FileHandle* const handle = mount_.handles.file(fh);
  if (handle == nullptr) return Errno(EBADF);
  if (handle->is_lock_file && offset > handle->most_bytes - length) return Errno(EFBIG);
  if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE)) == 0) {
    CACHESHIM_CHECK(pay_for(*handle, offset, static_cast<std::uint64_t>(length)));
  }
  CACHESHIM_CHECK(change_data(*handle, [&](int fd) -> Result<std::size_t> {
    if (::fallocate(fd, mode, offset, length) == -1) return Errno::last();
    return std::size_t{0};
  }));
  return {};
}

Result<off_t> FileData::lseek(std::uint64_t fh, off_t offset, int whence) {
  FileHandle* const handle = mount_.handles.file(fh);
  if (handle == nullptr) return Errno(EINVAL);
  CACHESHIM_CHECK(refresh_for_reading(*handle));
  const off_t at = ::lseek(handle->fd.get(), offset, whence);
  if (at == -1) return Errno::last();
  return at;
}

Result<std::size_t> FileData::copy_file_range(std::uint64_t fh_in, off_t in, std::uint64_t fh_out,
                                              off_t out, std::size_t length) {
  FileHandle* const source = mount_.handles.file(fh_in);
  FileHandle* const target = mount_.handles.file(fh_out);
  if (source == nullptr || target == nullptr) return Errno(EXDEV);
  CACHESHIM_CHECK(refresh_for_reading(*source));
  const auto st = sys::stat_fd(source->fd.get());
  const off_t left = st ? std::max<off_t>(st->st_size - in, 0) : 0;
  const off_t wanted = std::min<off_t>(static_cast<off_t>(length), left);
  if (target->is_lock_file && out > target->most_bytes - wanted) return Errno(EFBIG);
  CACHESHIM_CHECK(pay_for(*target, out, static_cast<std::uint64_t>(wanted)));
  return change_data(*target, [&](int fd) -> Result<std::size_t> {
    const ssize_t count = ::copy_file_range(source->fd.get(), &in, fd, &out, length, 0);
    if (count == -1) return Errno::last();
    return static_cast<std::size_t>(count);
  });
}

}  // namespace cacheshim
