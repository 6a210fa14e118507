// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/fuse.h>

#include <utility>

#include "fuse/jobs/caller.h"
#include "fuse/nodes/open_flags.h"
#include "fuse/vfs/filesystem.h"
#include "store/sys/process.h"
#include "store/sys/sys.h"

// Files of class `shared`, which are written through to the base (store/locks/shared_file.h). close(2) is when
// what was written is put in its place, and it waits for that (FLUSH): who locks, writes, closes and
// unlocks has it there for the next one. The kernel closes the files of a process that is killed in the
// same way; what such a one has written is as it happened to be, and is thrown away.
namespace cacheshim {

std::unique_ptr<SharedFile> Filesystem::shared_file_of(const std::string& path, Common kind,
                                                       int flags, bool is_new) const {
  if (!wants_write(flags) || kind != Common::kShared) return nullptr;
  return std::make_unique<SharedFile>(store_.staging(), path, is_new);
}

Result<std::size_t> Filesystem::change_shared(
    FileHandle& handle, const std::function<Result<std::size_t>(int fd)>& change,
    off_t keep_bytes) {
  const std::lock_guard lock(handle.shared->mutex);
  CACHESHIM_CHECK(handle.shared->stage(handle.fd.get(), keep_bytes));
  return change(handle.fd.get());
}

// Where the file is now, "" where it has lost its name: renamed with its node, or replaced underneath
// it, which leaves the node without a name.
std::string Filesystem::shared_path(const FileHandle& handle) {
  const std::shared_lock lock(handle.job->overlay.mutex());
  const NodeInfo info = nodes_.info(handle.node);
  if (info.removed) return info.was_unlinked ? "" : handle.shared->path();
  const auto path = nodes_.path(handle.node);
  return path ? *path : handle.shared->path();
}

Status Filesystem::commit_shared(FileHandle& handle, pid_t closing) {
  const std::string path = shared_path(handle);
  SharedFile& shared = *handle.shared;
  const std::lock_guard lock(shared.mutex);
  if (is_being_killed(closing)) {
    shared.set_killed();  // another that has it open may go on with it
    return {};
  }
  if (path.empty()) return {};
  return shared.commit(handle.fd.get(), base_locks_, path);
}

void Filesystem::note_shared(const FileHandle& handle, pid_t opener) {
  if (!handle.is_shared_file) return;
  const std::lock_guard lock(shared_mutex_);
  shared_openings_[handle.node].push_back({&handle, process_of(opener)});
  ++shared_count_;
}

void Filesystem::forget_shared(const FileHandle& handle) {
  if (!handle.is_shared_file) return;
  const std::lock_guard lock(shared_mutex_);
  const auto found = shared_openings_.find(handle.node);
  if (found == shared_openings_.end()) return;
  shared_count_ -= std::erase_if(
      found->second, [&](const SharedOpening& opening) { return opening.handle == &handle; });
  if (found->second.empty()) shared_openings_.erase(found);
}

// A process sees what it has written itself.
std::optional<Result<Attributes>> Filesystem::attr_of_writer(const Request& request, NodeRef ref,
                                                                   const NodeInfo& info) {
  if (shared_count_ == 0) return std::nullopt;
  std::unique_lock lock(shared_mutex_);
  const auto found = shared_openings_.find(ref.node);
  if (found == shared_openings_.end()) return std::nullopt;
  const pid_t process = process_of(request.caller.tid);
  for (const SharedOpening& opening : found->second) {
    const bool is_own = process != 0 && opening.process == process && opening.handle->shared;
    if (!is_own) continue;
    const auto st = sys::stat_fd(opening.handle->fd.get());
    const bool in_upper = opening.handle->in_upper;
    lock.unlock();  // what follows may wait for the job
    return st ? handle_attr(ref, info, *st, in_upper) : Result<Attributes>(st.error());
  }
  return std::nullopt;
}

void Filesystem::end_shared(FileHandle& handle) {
  SharedFile& shared = *handle.shared;
  const std::lock_guard lock(shared.mutex);
  shared.discard();
  if (!shared.is_unfinished()) return;
  const auto st = base_locks_.find(shared.path());
  const bool is_as_made = st && st->st.st_dev == handle.device && st->st.st_ino == handle.inode;
  if (is_as_made && st->st.st_size == 0) (void)base_locks_.remove(shared.path());  // it may stay
}

Result<Attributes> Filesystem::handle_attr(NodeRef ref, const NodeInfo& info, struct stat st,
                                                 bool in_upper) {
  {  // staged, it has a name in staging
    const std::shared_lock lock(info.job->overlay.mutex());
    CACHESHIM_TRY(object, common_object(ref.node, info));
    CACHESHIM_TRY(opened, sys::stat_fd(object->get()));
    const bool has_name = is_named(ref.node, info, opened) || is_named(ref.node, info, st);
    st.st_nlink = has_name ? 1 : 0;
  }
  CACHESHIM_TRY(shown, show(ref, info, st, in_upper));
  return Attributes{shown, 0, st.st_ino};
}

// truncate(2) and ftruncate(2). Nothing where it is another kind of change or file.
std::optional<Result<Attributes>> Filesystem::try_change_shared(
    NodeRef ref, const NodeInfo& info, const struct stat& attr, int to_set, FileHandle* handle) {
  if (handle != nullptr && handle->shared) {
    const std::lock_guard lock(handle->shared->mutex);
    const bool resizes = (to_set & FATTR_SIZE) != 0;
    const auto changed = [&]() -> Result<Attributes> {
      if (resizes) CACHESHIM_CHECK(handle->shared->stage(handle->fd.get(), attr.st_size));
      CACHESHIM_CHECK(change_lock(handle->fd.get(), handle->most_bytes, attr, to_set));
      CACHESHIM_TRY(st, sys::stat_fd(handle->fd.get()));
      return handle_attr(ref, info, st, handle->in_upper);
    };
    return changed();
  }
  if ((to_set & FATTR_SIZE) == 0) return std::nullopt;
  if (info.common != Common::kShared || is_outdated(info)) return std::nullopt;
  const auto [named, object] = [&] {
    const std::shared_lock lock(info.job->overlay.mutex());
    return std::pair(nodes_.path(ref.node), common_object(ref.node, info));
  }();
  if (!named) return std::nullopt;
  if (!object) return object.error();
  return [&, &path = *named, &file = **object]() -> Result<Attributes> {
    CACHESHIM_TRY(fd, sys::reopen(file.get(), O_RDWR));
    SharedFile shared(store_.staging(), path, /*is_new=*/false);
    CACHESHIM_CHECK(shared.stage(fd.get(), attr.st_size));
    CACHESHIM_CHECK(change_lock(fd.get(), most_bytes_of(info.common), attr, to_set));
    CACHESHIM_CHECK(shared.commit(fd.get(), base_locks_, path));
    CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
    CACHESHIM_TRY(shown, show(ref, info, st, false));
    return Attributes{shown, 0, st.st_ino};
  }();
}

}  // namespace cacheshim
