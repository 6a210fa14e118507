// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "common/counters.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "store/overlay/lower_stack.h"
#include "store/overlay/overlay_state.h"
#include "store/overlay/overlay_types.h"
#include "store/profiles/entry_map.h"
#include "store/threads/mutex.h"

// One job's writable layer over the lowers: the file system's logic, without FUSE.
//
// The class caches nothing of the lowers: every call walks from their roots, so that it sees what other processes have
// published or removed. Only one daemon changes the layer, so the daemon keeps an in-memory index of the layer
// (LayerIndex). A name is looked up in the layer first and then, unless the layer hides it, in the lowers. Semantics:
// kernel overlayfs.rst, with two differences. First, directories of the lowers can be renamed, because they are then
// copied up with their contents. Second, an entry that this layer began while the base had no part of it is opaque from
// its first file on. So no reader sees a mixture of two builders' files. "The base" is the merged view of the lowers; a
// store has one lower.
//
// The class looks names up and lists directories. The functions that change an overlay are in
// changes.h (names), copy_up.h (data), common_names.h (lock files of the base) and layer_upkeep.h
// (the layer itself, for its daemon and the publisher).
namespace cacheshim {

// Paths are relative to the store's root, without "." and ".."; "" is the root itself. Names with a reserved prefix
// (whiteout.h) and the store's own directory are not accessible: a lookup fails with ENOENT, creation with EPERM.
class Overlay {
 public:
  // Creates an overlay without a layer, for a job that has written nothing yet: it shows only the
  // base, read-only. Objects that are passed by reference or pointer must outlive the overlay.
  Overlay(std::shared_ptr<const LowerStack> lowers, const EntryMap& entries, Counters& counters,
          OverlayObserver* observer = nullptr, OverlayOptions options = {});
  // The lowers are directories, the topmost first. They must stay open.
  Overlay(const std::vector<int>& lowers, const EntryMap& entries, Counters& counters,
          OverlayObserver* observer = nullptr, OverlayOptions options = {});
  // Sets a layer; call load_layer() afterwards. Two empty descriptors remove the layer.
  void set_layer(UniqueFd upper, UniqueFd work) REQUIRES(state.mutex);
  bool has_layer() const REQUIRES_SHARED(state.mutex) { return static_cast<bool>(state.upper); }
  // Returns the overlay's own descriptor of the layer's directory; -1 without a layer.
  int upper() const REQUIRES_SHARED(state.mutex) { return state.upper.get(); }

  // Each function's annotation says how the caller must hold the mutex. A caller that builds a path
  // from names must take the mutex first, because a rename may change the names. The mutex is held
  // across system calls on the layer and the base, but never across a reply to the kernel.
  //
  // A change to a name needs the mutex held exclusively. It may be held shared if changes::makes_shared() returns true,
  // or if the change accepts Hold::kShared. In both cases, the layer must have the directory, and no other change of
  // this directory may be in progress (within one view, the kernel ensures this). If a lookup by path fails with the
  // mutex held shared, a concurrent rename may have made the path wrong: repeat the lookup with the mutex held
  // exclusively.
  SharedMutex& mutex() const RETURN_CAPABILITY(state.mutex) { return state.mutex; }

  // The lock files. After LockDirectory::share() they are in the base, and all jobs share them. They
  // are found, opened, created, renamed, linked and removed like other files, even while another
  // process holds their locks.
  BaseLocks& locks() { return state.locks; }

  Result<Found> find(const std::string& path) const REQUIRES_SHARED(state.mutex);
  // As find(), but returns where the object is (base, layer, lock file) instead of its origin.
  Result<Located> locate(const std::string& path) const REQUIRES_SHARED(state.mutex);
  // Whether the layer has this directory itself.
  bool has_own_directory(const std::string& path) const { return state.index.has_directory(path); }
  // Opens the layer's object or, if the layer has none, the base's, for reading or with O_PATH. Does not follow
  // symlinks.
  Result<Opened> open(const std::string& path, int flags) const REQUIRES_SHARED(state.mutex);
  Result<std::vector<ListedEntry>> list(const std::string& path) const REQUIRES_SHARED(state.mutex);
  Result<std::string> read_link(const std::string& path) const REQUIRES_SHARED(state.mutex);
  Result<std::string> get_xattr(const std::string& path, const char* name) const
      REQUIRES_SHARED(state.mutex);
  // Returns why the layer hides the base's name `path`, for messages; "" if it does not hide the name.
  std::string why_hidden(const std::string& path) const REQUIRES_SHARED(state.mutex);
  // Returns the base's object at `path`. Errors: ENOENT if there is none, or if the layer hides it.
  Result<struct stat> find_in_base(const std::string& path) const REQUIRES_SHARED(state.mutex);
  // Call when another machine may have just created `path` in the base: the next lookup then asks the file server.
  void expect_in_base(const std::string& path) const {
    if (state.lowers->server_misses() != nullptr) state.lowers->server_misses()->expect(path);
  }
  // Sets st_nlink to the number of names that the object has in the merged view. find() and
  // locate() have already done so; call it for stat results of other functions.
  void correct_links(struct stat& st) const REQUIRES_SHARED(state.mutex) {
    state.links.correct_links(st);
  }

  OverlayState state;

 private:
  Result<Located> locate_lock(const std::string& path) const REQUIRES_SHARED(state.mutex);
  Result<Located> locate_merged(const std::string& path) const REQUIRES_SHARED(state.mutex);
  Result<Located> locate_linked(const std::string& path, const struct stat& st) const
      REQUIRES_SHARED(state.mutex);
  Result<Opened> open_merged(const std::string& path, int flags) const REQUIRES_SHARED(state.mutex);
  Result<Opened> open_lower(const std::string& path, int flags) const REQUIRES_SHARED(state.mutex);
  Result<std::vector<ListedEntry>> list_merged(const std::string& path) const
      REQUIRES_SHARED(state.mutex);
  Result<std::vector<ListedEntry>> list_upper(const std::string& path) const
      REQUIRES_SHARED(state.mutex);
  void add_from_base(const std::string& path, std::vector<ListedEntry> below,
                     std::vector<ListedEntry>& listed) const;
  nlink_t count_directory_links(const std::string& path, const Located& found) const
      REQUIRES_SHARED(state.mutex);
};

}  // namespace cacheshim
