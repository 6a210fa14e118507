// SPDX-License-Identifier: Apache-2.0
#define XXH_INLINE_ALL
#include "fuse/vfs/directories.h"

#include <dirent.h>
#include <fcntl.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "store/overlay/layer_upkeep.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kDotPlace = 1;
constexpr std::uint64_t kDotDotPlace = 2;

std::uint64_t place_of(const std::string& name) {
  // The result fits into a positive off_t, and leaves the offsets 0 to 3 free.
  return (XXH3_64bits(name.data(), name.size()) >> 2) | 4;
}

// If the hashes of two names collide, the second gets the next place.
void sort_by_place(std::vector<DirHandle::Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& left, const auto& right) {
    return std::tie(left.place, left.listed.name) < std::tie(right.place, right.listed.name);
  });
  for (std::size_t i = 1; i < entries.size(); ++i) {
    entries[i].place = std::max(entries[i].place, entries[i - 1].place + 1);
  }
}

}  // namespace

Result<OpenedFile> Directories::opendir(const Request& request, NodeId ino) {
  CACHESHIM_TRY(charge, mount_.charge(request.caller.uid, Limit::kHandles));
  const NodeIndex node = decode(ino).node;
  const NodeInfo info = mount_.nodes.info(node);
  if (info.job != nullptr) info.job->use.touch();
  OpenedFile opened;
  auto dir = std::make_unique<DirHandle>();
  dir->node = node;
  if (info.kind == NodeKind::kObject) {
    const ReaderLock lock(info.job->overlay.mutex());
    opened.cache_readdir = opened.keep_cache = may_keep_listing(node, info);
    if (auto object = objects_.open_object(*info.job, node)) dir->object = *std::move(object);
  }
  if (dir->object) dir->place = mount_.open_files.add(node, dir->object.get());
  opened.fh = mount_.handles.add(std::move(dir), std::move(charge));
  return opened;
}

// Whether the kernel may cache the listing. The kernel drops a cached listing when one of its own requests changes the
// directory, or when the daemon invalidates the directory.
bool Directories::may_keep_listing(NodeIndex node, const NodeInfo& info) {
  if (info.removed || info.job->views.shares_uids()) return false;
  const auto path = mount_.nodes.path(node);
  return path && mount_.timeouts.begin(*info.job, *path).watched;
}

void Directories::releasedir(std::uint64_t fh) {
  const DirHandle* const dir = mount_.handles.dir(fh);
  if (dir != nullptr && dir->object) mount_.open_files.remove(dir->node, dir->place);
  mount_.handles.remove(fh);
}

Status Directories::load(const Request& request, NodeRef ref, DirHandle& dir) {
  const NodeInfo info = mount_.nodes.info(ref.node);
  dir.entries.clear();
  dir.loaded = true;
  if (info.removed) return {};  // a removed directory is empty, as on any file system
  std::vector<ListedEntry> listed;
  if (info.kind != NodeKind::kObject) {
    listed = own_tree_.list_own(request, info);
  } else {
    using Listed = Result<std::vector<ListedEntry>>;
    CACHESHIM_TRY(entries, Objects::find_by_path(info.job->overlay, [&]() -> Listed {
                    info.job->overlay.mutex().assert_held_shared();
                    CACHESHIM_TRY(path, mount_.nodes.path(ref.node));
                    return info.job->overlay.list(path);
                  }));
    listed = std::move(entries);
  }
  const std::uint64_t parent = info.parent == 0 ? info.ino : mount_.nodes.info(info.parent).ino;
  dir.entries = {{kDotPlace, {".", DT_DIR, info.ino, 0}},
                 {kDotDotPlace, {"..", DT_DIR, parent, 0}}};
  for (ListedEntry& entry : listed) {
    const bool is_object = info.kind == NodeKind::kObject;
    if (is_object)
      entry.ino = mount_.nodes.objects().shown_inode(ref.node, entry.name, entry.device, entry.ino);
    dir.entries.push_back({place_of(entry.name), std::move(entry)});
  }
  sort_by_place(dir.entries);
  return {};
}

Status Directories::readdir(const Request& request, NodeId ino, std::uint64_t fh, off_t offset,
                            const EntrySink& take) {
  DirHandle* const open = mount_.handles.dir(fh);
  if (open == nullptr) return Errno(EBADF);
  DirHandle& dir = *open;
  const MutexLock lock(dir.mutex);
  if (offset == 0 || !dir.loaded) CACHESHIM_CHECK(load(request, decode(ino), dir));
  const auto after = [](std::uint64_t place, const DirHandle::Entry& entry) {
    return place < entry.place;
  };
  auto entry = std::upper_bound(dir.entries.begin(), dir.entries.end(),
                                static_cast<std::uint64_t>(offset), after);
  while (entry != dir.entries.end() && take(entry->listed, static_cast<off_t>(entry->place))) {
    ++entry;
  }
  return {};
}

Status Directories::fsyncdir(NodeId ino) {
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (info.kind != NodeKind::kObject || info.removed) return {};
  CACHESHIM_TRY(object, Objects::find_by_path(info.job->overlay, [&] {
                  info.job->overlay.mutex().assert_held_shared();
                  return objects_.open_object(*info.job, ref.node);
                }));
  CACHESHIM_TRY(directory, sys::reopen(object.get(), O_RDONLY | O_DIRECTORY));
  const Status synced = sys::sync_file(directory.get());
  const ReaderLock lock(info.job->overlay.mutex());
  (void)sync_records(info.job->overlay);  // if this fails, a copied-up object may show a new inode number later
  return synced;
}

}  // namespace cacheshim
