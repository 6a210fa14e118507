// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>

#include <vector>

#include "fuse/filesystem.h"
#include "store/sys.h"

// Folders, listed.
namespace cacheshim {

void Filesystem::opendir(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  const NodeInfo info = nodes_.info(decode(ino).node);
  if (info.job != nullptr) info.job->touch();
  fi->fh = handles_.add(std::make_unique<DirHandle>());
  if (fuse_reply_open(req, fi) == -ENOENT) handles_.remove(fi->fh);
}

Status Filesystem::load(fuse_req_t req, Ref ref, DirHandle& dir) {
  const NodeInfo info = nodes_.info(ref.node);
  dir.entries.clear();
  dir.loaded = true;
  if (info.removed) return {};  // as any file system lists a folder that is gone: as empty
  if (info.kind != NodeKind::kObject) {
    dir.entries = list_own(req, info);
  } else {
    const std::shared_lock lock(info.job->overlay.mutex());
    CACHESHIM_TRY(path, nodes_.path(ref.node));
    CACHESHIM_TRY(entries, info.job->overlay.list(path));
    dir.entries = std::move(entries);
  }
  dir.entries.insert(dir.entries.begin(), {{".", DT_DIR, info.ino}, {"..", DT_DIR, info.ino}});
  return {};
}

void Filesystem::readdir(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset,
                         fuse_file_info* fi) {
  DirHandle& dir = *handles_.dir(fi->fh);
  std::vector<char> buffer(size);
  std::size_t used = 0;
  {
    const std::lock_guard lock(dir.mutex);
    if (offset == 0 || !dir.loaded) {
      if (const Status loaded = load(req, decode(ino), dir); !loaded) {
        return (void)fuse_reply_err(req, loaded.error().code());
      }
    }
    for (auto at = static_cast<std::size_t>(offset); at < dir.entries.size(); ++at) {
      const ListedEntry& entry = dir.entries[at];
      struct stat st {};
      st.st_ino = entry.ino;
      st.st_mode = static_cast<mode_t>(DTTOIF(entry.type));
      const std::size_t need =
          fuse_add_direntry(req, buffer.data() + used, size - used, entry.name.c_str(), &st,
                            static_cast<off_t>(at + 1));
      if (need > size - used) break;
      used += need;
    }
  }
  (void)fuse_reply_buf(req, buffer.data(), used);
}

void Filesystem::releasedir(fuse_req_t req, fuse_file_info* fi) {
  handles_.remove(fi->fh);
  (void)fuse_reply_err(req, 0);
}

void Filesystem::fsyncdir(fuse_req_t req, fuse_ino_t ino) {
  const Ref ref = decode(ino);
  const NodeInfo info = nodes_.info(ref.node);
  Status synced;
  if (info.kind == NodeKind::kObject && !info.removed) {
    const std::shared_lock lock(info.job->overlay.mutex());
    const auto path = nodes_.path(ref.node);
    const auto folder =
        path ? info.job->overlay.open(*path, O_RDONLY | O_DIRECTORY) : Result<Opened>(path.error());
    synced = folder ? sys::sync_file(folder->fd.get()) : Status(folder.error());
  }
  (void)fuse_reply_err(req, synced ? 0 : synced.error().code());
}

}  // namespace cacheshim
