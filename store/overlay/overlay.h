// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/counters.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "store/layer/layer_index.h"
#include "store/layer/link_index.h"
#include "store/locks/lock_files.h"
#include "store/overlay/lower_stack.h"
#include "store/overlay/origin_log.h"
#include "store/overlay/overlay_types.h"
#include "store/overlay/staged_copies.h"
#include "store/profiles/entry_map.h"
#include "store/sys/copy_file.h"
#include "store/sys/mutex.h"
#include "store/sys/new_object.h"
#include "store/sys/path_root.h"
#include "store/sys/paths.h"

// One job's writable layer over the lowers: the file system's logic, without FUSE.
//
// Nothing of the lowers is cached: every call walks from their roots, so that the next call sees
// what others publish or remove. Only its one daemon changes the layer, so what it has and hides is
// held in memory (LayerIndex). A name is looked up in the layer first, then, unless hidden, below.
// Semantics: kernel overlayfs.rst, with these differences: directories of the lowers can be renamed
// (they are copied up whole), and an entry that this layer began while the base had none is opaque
// from its first file on, so that no reader sees files of two builders mixed. "The base" is the
// merged view of the lowers; a store has one.
namespace cacheshim {

// Paths are relative to the store's root, without "." and "..", "" being the root itself. Names
// with a reserved prefix (whiteout.h) and the store's own directory do not exist: ENOENT, or EPERM
// to create them.
class Overlay {
 public:
  // An overlay without a layer, for a job that has written nothing yet: only the base, read-only.
  // Objects that are passed by reference or pointer must outlive the overlay.
  Overlay(std::shared_ptr<const LowerStack> lowers, const EntryMap& entries, Counters& counters,
          OverlayObserver* observer = nullptr, OverlayOptions options = {});
  // The same over directories that stay open, the topmost first.
  Overlay(const std::vector<int>& lowers, const EntryMap& entries, Counters& counters,
          OverlayObserver* observer = nullptr, OverlayOptions options = {});
  // Sets a layer, after which load_layer() must be called, or removes it (two empty descriptors).
  void set_layer(UniqueFd upper, UniqueFd work) REQUIRES(mutex_);
  bool has_layer() const REQUIRES_SHARED(mutex_) { return static_cast<bool>(upper_); }

  // Each function says how it must be held. A caller whose paths are made of names that a rename may change takes it
  // before it makes them. Held across system calls on the layer and the base, never across a reply.
  //
  // Changes that require it shared alone are made with it held shared where makes_shared() or their `hold` allow it: those
  // of a name in a directory that the layer has, where it is certain that no other change of that directory goes
  // on (the kernel sees to that within one view). All other changes need it exclusively. A lookup by a path that a change
  // may make wrong meanwhile, and that fails, must be repeated with it held exclusively.
  SharedMutex& mutex() const RETURN_CAPABILITY(mutex_) { return mutex_; }
  // Whether a function that creates something at `path` may be called while it is held shared.
  bool makes_shared(const std::string& path) const REQUIRES_SHARED(mutex_);

  Result<Found> find(const std::string& path) const REQUIRES_SHARED(mutex_);
  // Whether the layer has this directory itself.
  bool has_own_directory(const std::string& path) const { return index_.has_directory(path); }
  // For reading, or O_PATH: opens the layer's object, otherwise the base's. Does not follow
  // symlinks.
  Result<Opened> open(const std::string& path, int flags) const REQUIRES_SHARED(mutex_);
  Result<std::vector<ListedEntry>> list(const std::string& path) const REQUIRES_SHARED(mutex_);
  Result<std::string> read_link(const std::string& path) const REQUIRES_SHARED(mutex_);
  Result<std::string> get_xattr(const std::string& path, const char* name) const
      REQUIRES_SHARED(mutex_);
  // Returns why the base's object at `path`, if there is one, is not visible, for messages; "" if
  // it is.
  std::string why_hidden(const std::string& path) const REQUIRES_SHARED(mutex_);
  // Returns the base's object at `path` that the layer does not hide.
  Result<struct stat> find_in_base(const std::string& path) const REQUIRES_SHARED(mutex_);

  // Call without the mutex before a change that copies up `path`; the result may be out of date by
  // then. Copies large files, of a directory everything below it, into the work directory. The
  // change then uses these copies, and makes those itself that are missing or out of date. One copy
  // serves all concurrent requests, and all of them get its failure. Keep the result until the
  // change is done. Errors: ENOSPC and others of copying (nothing kept).
  Result<PreparedCopies> prepare_copy_up(const std::string& path, off_t keep_bytes = kWholeFile)
      EXCLUDES(mutex_);

  // Shares lock files, which belong to the base for all jobs: arguments as those of
  // LockFiles::share(). They are found, opened, created, renamed, linked and removed like other
  // files, also while another process has them locked. A file of the layer becomes a lock file by a
  // rename or link to such a name, and the other way round. Errors of these: EXDEV for a rename
  // with RENAME_EXCHANGE or of an object that is not a regular file, EPERM for a link if the layer
  // is on another file system; both for names of class `shared`; EFBIG.
  void share_locks(int base, const LockAccess* access = nullptr, int staging = -1) {
    locks_.share(base, access, staging);
  }
  // Whether there is one at `path`; whether a regular file created there would be one.
  bool is_shared_lock(const std::string& path) const REQUIRES_SHARED(mutex_);
  bool is_shared_lock_name(const std::string& path) const { return locks_.is_shared_name(path); }
  off_t most_lock_bytes(const std::string& path) const { return locks_.most_bytes(path); }
  // Creates and opens a lock file; if it exists and `flags` lack O_EXCL, opens that one. Errors:
  // EEXIST, also for an object that is not a regular file.
  Result<LockFiles::Made> create_lock(const std::string& path, int flags) REQUIRES_SHARED(mutex_);
  // Returns the base's file that takes the locks of the file at `path` (LockFiles::open_named());
  // creates it if `makes`. Errors: as there, and EACCES if the base lacks a directory above it that
  // the view closes to others: if the daemon created that directory, all users could read what the
  // job publishes in it.
  bool may_become_lock(const std::string& path) const { return locks_.may_become_lock(path); }
  Result<UniqueFd> open_named_lock(const std::string& path, bool makes) const
      REQUIRES_SHARED(mutex_);
  void hide_lock(const std::string& path);
  void show_lock(const std::string& path) { locks_.show(path); }
  // The directories in which the view lacks a lock file of the base.
  std::vector<std::string> hidden_lock_directories() const { return locks_.hidden_directories(); }

  // Ensures that the layer has `path` itself; of a file's data the first `keep_bytes`, or more.
  // Atomic: staged in the work directory, then renamed. Errors: ENOSPC (nothing kept).
  Status copy_up(const std::string& path, off_t keep_bytes = kWholeFile) REQUIRES_SHARED(mutex_);
  // Opens a regular file for writing, copied up first; O_TRUNC saves copying the data.
  Result<UniqueFd> open_writable(const std::string& path, int flags) REQUIRES(mutex_);
  // Creates and opens a regular file that does not exist yet (EEXIST; for a lock file, see
  // create_lock()).
  Result<UniqueFd> create_file(const std::string& path, int flags, const NewObject& wanted)
      REQUIRES_SHARED(mutex_);
  Status make_dir(const std::string& path, const NewObject& wanted) REQUIRES_SHARED(mutex_);
  Status make_node(const std::string& path, const NewObject& wanted)
      REQUIRES_SHARED(mutex_);  // everything except directories and links
  Status make_symlink(const std::string& path, const std::string& target,
                      const NewObject& wanted = 0777) REQUIRES_SHARED(mutex_);
  Status link(const std::string& path, const std::string& new_path) REQUIRES(mutex_);
  // O_TMPFILE: a file without a name that belongs to the directory `dir`; and linkat(2) of it.
  Result<UniqueFd> make_tmpfile(const std::string& dir, int flags, const NewObject& wanted)
      REQUIRES(mutex_);
  Status link_object(int fd, const std::string& new_path) REQUIRES(mutex_);
  // For an object of the base that has lost its name here and is held by an O_PATH descriptor:
  // makes a copy without a name, held in the same way, for changes. Does not copy the contents of a
  // directory.
  Result<UniqueFd> copy_nameless(int object) REQUIRES(mutex_);
  Status remove_file(const std::string& path, Hold hold = Hold::kExclusive) REQUIRES_SHARED(mutex_);
  // Returns ENOTEMPTY while the merged directory has contents.
  Status remove_dir(const std::string& path, Hold hold = Hold::kExclusive) REQUIRES_SHARED(mutex_);
  // `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE or 0. If a file of the layer has become a lock file,
  // `new_lock` gets an O_PATH descriptor of it: another process may already have removed its name.
  Status rename(const std::string& from, const std::string& to, unsigned flags,
                Hold hold = Hold::kExclusive, UniqueFd* new_lock = nullptr) REQUIRES_SHARED(mutex_);

  // For the publisher: the layer's own descriptor; functions that remove a published file from the
  // layer without a whiteout, make the base visible again, and remove empty directories.
  int upper() const REQUIRES_SHARED(mutex_) { return upper_.get(); }
  Status drop_file(const std::string& path) REQUIRES(mutex_);
  Status clear_opaque(const std::string& path) REQUIRES(mutex_);
  void prune_empty_dirs(const std::string& path) REQUIRES(mutex_);
  // Reads the index of the layer's contents, which an earlier daemon may have left, and removes
  // staged files from the work directory.
  Status load_layer() REQUIRES(mutex_);
  // For objects that were not found by name: sets st_nlink to that of the merged view.
  void correct_links(struct stat& st) const REQUIRES_SHARED(mutex_) { links_.correct_links(st); }
  // Writes the work directory's records of copies to disk. The copies themselves must be on disk
  // before.
  Status sync_records() { return origins_.sync(); }

 private:
  enum class Where { kUpper, kIndex, kLowers, kLock };
  struct Located {
    struct stat st;
    Where where;      // kIndex: a name of the base whose data LinkIndex has
    std::string key;  // in LinkIndex, where that was asked
    UniqueFd lock;    // kLock: an O_PATH descriptor of it
  };

  Result<Located> locate(const std::string& path) const REQUIRES_SHARED(mutex_);
  Result<Located> locate_lock(const std::string& path) const REQUIRES_SHARED(mutex_);
  Result<Located> locate_merged(const std::string& path) const REQUIRES_SHARED(mutex_);
  Result<Opened> open_merged(const std::string& path, int flags) const REQUIRES_SHARED(mutex_);
  Result<std::vector<ListedEntry>> list_merged(const std::string& path) const
      REQUIRES_SHARED(mutex_);
  bool becomes_common(const Located& source, const std::string& to) const;
  static bool are_one_file(const struct stat& one, const struct stat& other);
  // ---- overlay_lock_names.cc
  Status check_lock_directory(const std::string& path) const REQUIRES_SHARED(mutex_);
  Status rename_common(const std::string& from, const Located& source, const std::string& to,
                       const Result<Located>& target, unsigned flags, UniqueFd* new_lock)
      REQUIRES_SHARED(mutex_);
  Status rename_into_base(const std::string& from, const Located& source, const std::string& to,
                          unsigned flags, UniqueFd* new_lock) REQUIRES_SHARED(mutex_);
  Status rename_out_of_base(const std::string& from, const std::string& to,
                            const Result<Located>& target) REQUIRES_SHARED(mutex_);
  Status link_common(const std::string& path, const std::string& new_path) REQUIRES_SHARED(mutex_);
  Status link_into_base(int object, const std::string& new_path) REQUIRES_SHARED(mutex_);
  bool base_has_part_of(const std::string& entry) const REQUIRES_SHARED(mutex_);
  bool is_own_file(const std::string& path, const Located& found) const REQUIRES_SHARED(mutex_);
  Result<Located> locate_linked(const std::string& path, const struct stat& st) const
      REQUIRES_SHARED(mutex_);
  Result<Opened> open_lower(const std::string& path, int flags) const REQUIRES_SHARED(mutex_);
  Result<std::vector<ListedEntry>> list_upper(const std::string& path) const
      REQUIRES_SHARED(mutex_);
  void add_from_base(const std::string& path, std::vector<ListedEntry> below,
                     std::vector<ListedEntry>& listed) const;
  bool is_store_record(std::string_view path) const;
  void shadow(const std::string& path, bool tree) const;
  nlink_t count_directory_links(const std::string& path, const Located& found) const
      REQUIRES_SHARED(mutex_);
  Status check_name(const std::string& path) const;
  Status load_directory(int directory, const std::string& path, std::vector<std::string>& further)
      REQUIRES(mutex_);
  Status empty_work() REQUIRES(mutex_);

  // ---- overlay_copy_up.cc
  Status ensure_directory(const std::string& path) REQUIRES_SHARED(mutex_);
  Result<UniqueFd> ensure_upper_dir(const std::string& path) REQUIRES_SHARED(mutex_);
  Result<UniqueFd> open_upper_parent(const std::string& path) REQUIRES_SHARED(mutex_);
  Status copy_up_found(const std::string& path, const Located& found, off_t keep_bytes)
      REQUIRES_SHARED(mutex_);
  Status copy_up_directory(int parent, const std::string& path, const struct stat& st)
      REQUIRES_SHARED(mutex_);
  Status copy_up_file(const std::string& path, const struct stat& st, off_t keep_bytes)
      REQUIRES_SHARED(mutex_);
  Status copy_up_special(const std::string& path, const struct stat& st) REQUIRES_SHARED(mutex_);
  Status stage_special(int object, const struct stat& st, const std::string& staged) const
      REQUIRES_SHARED(mutex_);
  Status stage_copy(int object, const struct stat& st, const std::string& staged) const
      REQUIRES_SHARED(mutex_);
  Status copy_up_tree(const std::string& path) REQUIRES_SHARED(mutex_);
  Status link_up(const std::string& path, const Located& found) REQUIRES_SHARED(mutex_);
  Status prepare_below(const std::string& path, off_t keep_bytes, PreparedCopies& copies)
      EXCLUDES(mutex_);
  Result<std::string> link_key(const std::string& path) const;
  Result<StagedCopies::Claim> begin_copy(const std::string& path, off_t keep_bytes)
      REQUIRES_SHARED(mutex_);
  Status name_copy(const std::string& path, const StagedCopies::Ticket& copy,
                   const struct stat& base, int parent) REQUIRES_SHARED(mutex_);
  void announce_copy(const std::string& path, int parent);
  Status name_staged(const std::string& staged, int parent, const std::string& path,
                     const struct stat& base) REQUIRES_SHARED(mutex_);

  Status prepare_new_name(const std::string& path) REQUIRES_SHARED(mutex_);
  void begin_entry(const std::string& path) REQUIRES_SHARED(mutex_);
  Status mark_opaque(const std::string& path) REQUIRES_SHARED(mutex_);
  Status add_whiteout(const std::string& path) REQUIRES_SHARED(mutex_);
  void remove_whiteout(const std::string& path) REQUIRES_SHARED(mutex_);
  Status hide_in_base(const std::string& path, const Located& found) REQUIRES_SHARED(mutex_);
  Status move_over(const std::string& from, const std::string& to, bool is_dir)
      REQUIRES_SHARED(mutex_);
  Status exchange(const std::string& from, const std::string& to) REQUIRES_SHARED(mutex_);
  Status check_rename_target(const Located& source, const std::string& to,
                             const Result<Located>& target, unsigned flags) const
      REQUIRES_SHARED(mutex_);
  Status remove_last_name(const std::string& path, const std::function<Status()>& remove)
      REQUIRES_SHARED(mutex_);
  void forget_link_if_gone(const struct stat& st) REQUIRES_SHARED(mutex_);
  bool try_remove_own_dir(const std::string& path) REQUIRES_SHARED(mutex_);
  Status remove_upper_dir(const std::string& path) REQUIRES_SHARED(mutex_);
  Status remove_upper_file(const std::string& path) REQUIRES_SHARED(mutex_);

  const std::shared_ptr<const LowerStack> lowers_;
  UniqueFd upper_ GUARDED_BY(mutex_);
  std::shared_ptr<const UniqueFd> work_ GUARDED_BY(mutex_);         // with a layer
  std::unique_ptr<const PathRoot> upper_paths_ GUARDED_BY(mutex_);  // with a layer
  const EntryMap& entries_;
  Counters& counters_;
  OverlayObserver* const observer_;
  const OverlayOptions options_;
  LayerIndex index_;
  LinkIndex links_ GUARDED_BY(mutex_);
  OriginLog origins_;
  LockFiles locks_;
  StagedCopies staged_;
  mutable SharedMutex mutex_{LockRank::kOverlay};
};

}  // namespace cacheshim
