// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/shared_files/shared_files.h"

#include <fcntl.h>

#include <utility>

#include "fuse/jobs/job.h"
#include "fuse/nodes/open_flags.h"
#include "store/sys/process.h"
#include "store/sys/sys.h"

namespace cacheshim {

std::unique_ptr<SharedFile> SharedFiles::make(const std::string& path, CommonKind kind, int flags,
                                              bool is_new) const {
  if (!wants_write(flags) || kind != CommonKind::kShared) return nullptr;
  return std::make_unique<SharedFile>(store_.staging(), path, is_new);
}

Result<std::size_t> SharedFiles::change(FileHandle& handle, const Change& change,
                                        off_t keep_bytes) {
  const MutexLock lock(handle.shared->mutex);
  CACHESHIM_CHECK(handle.shared->stage(handle.fd.get(), keep_bytes));
  return change(handle.fd.get());
}

Result<struct stat> SharedFiles::change_named(const std::string& path, int file, off_t keep_bytes,
                                              const std::function<Status(int fd)>& change) const {
  CACHESHIM_TRY(fd, sys::reopen(file, O_RDWR));
  SharedFile shared(store_.staging(), path, /*is_new=*/false);
  const MutexLock lock(shared.mutex);
  CACHESHIM_CHECK(shared.stage(fd.get(), keep_bytes));
  CACHESHIM_CHECK(change(fd.get()));
  CACHESHIM_CHECK(shared.commit(fd.get(), files_, path));
  return sys::stat_fd(fd.get());
}

// Returns the file's current path, which a rename may have changed. If another process has replaced the file, the node
// has no name; the result is then the path at which the handle opened the file. Returns "" if a request has unlinked
// the file.
std::string SharedFiles::path_of(const FileHandle& handle) const {
  const ReaderLock lock(handle.job->overlay.mutex());
  const NodeInfo info = nodes_.info(handle.node);
  if (info.removed) return info.was_unlinked ? "" : handle.shared->path();
  const auto path = nodes_.path(handle.node);
  return path ? *path : handle.shared->path();
}

Status SharedFiles::commit(FileHandle& handle, pid_t closing) const {
  const std::string path = path_of(handle);
  SharedFile& shared = *handle.shared;
  const MutexLock lock(shared.mutex);
  if (is_being_killed(closing)) {
    shared.set_killed();  // another process may still have the file open and write to it
    return {};
  }
  if (path.empty()) return {};
  return shared.commit(handle.fd.get(), files_, path);
}

void SharedFiles::note_opened(const FileHandle& handle, pid_t thread) {
  if (!handle.is_shared_file) return;
  const MutexLock lock(mutex_);
  openings_[handle.node].push_back({&handle, process_of(thread)});
  ++count_;
}

void SharedFiles::released(FileHandle& handle) {
  if (handle.is_shared_file) {
    const MutexLock lock(mutex_);
    const auto found = openings_.find(handle.node);
    if (found != openings_.end()) {
      count_ -= std::erase_if(found->second,
                              [&](const Opening& opening) { return opening.handle == &handle; });
      if (found->second.empty()) openings_.erase(found);
    }
  }
  if (handle.shared) discard(handle);
}

std::optional<SharedFiles::OwnCopy> SharedFiles::own_copy_of(NodeIndex node, pid_t thread) {
  if (count_ == 0) return std::nullopt;
  const MutexLock lock(mutex_);
  const auto found = openings_.find(node);
  if (found == openings_.end()) return std::nullopt;
  const pid_t process = process_of(thread);
  for (const Opening& opening : found->second) {
    const bool is_own = process != 0 && opening.process == process && opening.handle->shared;
    if (is_own) return OwnCopy{sys::stat_fd(opening.handle->fd.get()), opening.handle->in_upper};
  }
  return std::nullopt;
}

void SharedFiles::discard(FileHandle& handle) const {
  SharedFile& shared = *handle.shared;
  const MutexLock lock(shared.mutex);
  shared.discard();
  if (!shared.is_unfinished()) return;
  const auto st = files_.find(shared.path());
  const bool is_as_made = st && st->st.st_dev == handle.device && st->st.st_ino == handle.inode;
  // If this fails, an empty file stays.
  if (is_as_made && st->st.st_size == 0) (void)files_.remove(shared.path());
}

}  // namespace cacheshim
