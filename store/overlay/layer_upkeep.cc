// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/layer_upkeep.h"

#include <dirent.h>
#include <fcntl.h>

#include <utility>
#include <vector>

#include "store/overlay/layer_names.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

bool is_missing(const Errno& error) { return error == ENOENT || error == ENOTDIR; }

Status empty_work(Overlay& overlay) REQUIRES(overlay.mutex()) {
  CACHESHIM_TRY(entries, sys::list_dir(overlay.state.work->get()));
  for (const sys::DirEntry& entry : entries) {
    if (entry.name != LinkIndex::kDirectory && entry.name != OriginLog::kFile) {
      (void)sys::remove_tree(overlay.state.work->get(), entry.name);  // a leftover is harmless
    }
  }
  return {};
}

// Adds one directory of the layer to the index, and the paths of its subdirectories to `further`.
Status load_directory(Overlay& overlay, int directory, const std::string& path,
                      std::vector<std::string>& further) REQUIRES(overlay.mutex()) {
  CACHESHIM_TRY(entries, sys::read_dir(directory));
  for (const sys::DirEntry& entry : entries) {
    overlay.state.origins.found(directory, entry.name, entry.ino);
    if (entry.name == kOpaqueMarker) {
      overlay.state.shadow(path, true);
      overlay.state.index.add_opaque(path);
    } else if (is_reserved_name(entry.name)) {
      // With all names below it, because the marker of a long name does not contain that name.
      overlay.state.shadow(path, true);
      overlay.state.index.add_whiteout_marker(path, entry.name);
    } else if (entry.type == DT_DIR || entry.type == DT_UNKNOWN) {
      const Result<UniqueFd> child =
          sys::open_beneath(directory, entry.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      const std::string child_path = join_path(path, entry.name);
      // the type was DT_UNKNOWN, and it is not a directory
      const bool is_file = !child && is_missing(child.error());
      overlay.state.shadow(child_path, is_file);
      if (is_file) continue;
      if (!child) return child.error();
      overlay.state.index.add_directory(child_path);
      further.push_back(child_path);
    } else {
      overlay.state.shadow(join_path(path, entry.name), true);
    }
  }
  return {};
}

}  // namespace

Status load_layer(Overlay& overlay) {
  CACHESHIM_CHECK(empty_work(overlay));
  CACHESHIM_CHECK(overlay.state.links.load(overlay.state.work->get()));
  if (!overlay.state.links.is_empty())
    overlay.state.shadow("", true);  // any name may be one of a copied file
  overlay.state.origins.begin_load(overlay.state.work->get());
  overlay.state.links.for_each_copy(
      [&overlay](int directory, const std::string& name, ino_t inode) {
        overlay.state.origins.found(directory, name, inode);
      });
  // Uses no recursion, and one descriptor at a time, because a job may make trees of any depth.
  std::vector<std::string> directories{""};
  while (!directories.empty()) {
    const std::string path = std::move(directories.back());
    directories.pop_back();
    CACHESHIM_TRY(directory, sys::open_beneath(overlay.state.upper.get(), path,
                                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    CACHESHIM_CHECK(load_directory(overlay, directory.get(), path, directories));
  }
  overlay.state.origins.end_load();
  return {};
}

// Also removes the origin record: if the file was published by a link, the base's file is the same
// object, and it is no longer a copy.
Status drop_file(Overlay& overlay, const std::string& path) {
  const auto st =
      overlay.state.origins.is_empty() ? Errno(ENOENT) : overlay.state.upper_paths->stat(path);
  if (st) (void)overlay.state.origins.remove(st->st_ino);
  return remove_upper_file(overlay, path);
}

void prune_empty_dirs(Overlay& overlay, const std::string& path) {
  const auto directory =
      sys::open_beneath(overlay.state.upper.get(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!directory) return;
  const auto entries = sys::list_dir(directory->get());
  if (!entries) return;
  for (const sys::DirEntry& entry : *entries) {
    if (entry.type == DT_DIR) prune_empty_dirs(overlay, join_path(path, entry.name));
  }
  // Removes only a directory that the base has as well: the job may need its own empty directories.
  if (!path.empty() && !overlay.find_in_base(path)) return;
  // This fails if the directory has contents.
  const auto unlink = [&]() REQUIRES_SHARED(overlay.state.mutex) {
    return overlay.state.upper_paths->unlink(path, AT_REMOVEDIR);
  };
  if (remove_last_name(overlay, path, unlink)) overlay.state.index.erase_tree(path);
}

}  // namespace cacheshim
