// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/layer_upkeep.h"

#include <dirent.h>
#include <fcntl.h>

#include <utility>
#include <vector>

#include "store/overlay/layer_names.h"
#include "store/sys/sys.h"
#include "store/sys/tree_walk.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

Status empty_work(Overlay& overlay) REQUIRES(overlay.mutex()) {
  CACHESHIM_TRY(entries, sys::list_dir(overlay.state.work->get()));
  for (const sys::DirEntry& entry : entries) {
    if (entry.name != LinkIndex::kDirectory && entry.name != OriginLog::kFile) {
      (void)sys::remove_tree(overlay.state.work->get(), entry.name);  // a leftover is harmless
    }
  }
  return {};
}

// Adds one directory of the layer to the index.
void load_directory(Overlay& overlay, LayerIndex::Loader& index, const WalkedDirectory& directory)
    REQUIRES(overlay.mutex()) {
  const std::string& path = directory.path;
  for (const sys::DirEntry& entry : directory.entries) {
    overlay.state.origins.found(directory.fd, entry.name, entry.ino);
    if (entry.name == kOpaqueMarker) {
      overlay.state.shadow(path, true);
      index.add_opaque(path);
    } else if (is_reserved_name(entry.name)) {
      // Shadows the whole directory, because the marker of a long name does not contain that name.
      overlay.state.shadow(path, true);
      index.add_whiteout_marker(path, entry.name);
    } else {
      const std::string child = join_path(path, entry.name);
      const bool is_dir = is_directory(directory.fd, entry);
      overlay.state.shadow(child, !is_dir);
      if (!is_dir) continue;
      index.add_directory(child);
      directory.further.push_back(entry.name);
    }
  }
}

}  // namespace

Status load_layer(Overlay& overlay) {
  CACHESHIM_CHECK(empty_work(overlay));
  CACHESHIM_CHECK(overlay.state.links.load(overlay.state.work->get()));
  if (!overlay.state.links.is_empty())
    overlay.state.shadow("", true);  // any name of the base may be another hard link of a copied file
  overlay.state.origins.begin_load(overlay.state.work->get());
  overlay.state.links.for_each_copy(
      [&overlay](int directory, const std::string& name, ino_t inode) {
        overlay.state.origins.found(directory, name, inode);
      });
  LayerIndex::Loader index(overlay.state.index);
  const auto load = [&](const WalkedDirectory& directory) REQUIRES(overlay.mutex()) -> Status {
    load_directory(overlay, index, directory);
    return {};
  };
  CACHESHIM_CHECK(walk_tree(overlay.state.upper.get(), "", load));
  overlay.state.origins.end_load();
  return {};
}

// Also removes the origin record: if the file was published by a link, the base's file is the same
// object, which is no longer a copy.
Status drop_file(Overlay& overlay, const std::string& path) {
  const auto st =
      overlay.state.origins.is_empty() ? Errno(ENOENT) : overlay.state.upper_paths->stat(path);
  if (st) (void)overlay.state.origins.remove(st->st_ino);
  return remove_upper_file(overlay, path);
}

void prune_empty_dir(Overlay& overlay, const std::string& path) {
  // The job may need its own empty directories.
  if (!path.empty() && !overlay.find_in_base(path)) return;
  // This fails if the directory has contents, or does not exist.
  const auto unlink = [&]() REQUIRES_SHARED(overlay.state.mutex) {
    return overlay.state.upper_paths->unlink(path, AT_REMOVEDIR);
  };
  if (remove_last_name(overlay, path, unlink)) overlay.state.index.erase_tree(path);
}

}  // namespace cacheshim
