// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fuse/mount.h"
#include "fuse/vfs/request.h"
#include "store/sys/new_object.h"

namespace cacheshim {

// Finds the objects of nodes, and brings them into the layer before a change.
//
// Not every object can be found by its name. A file or directory may be open when its name is removed, in this view or
// in the base (by another job, gc, verify or a process outside the mount). The node then has its own O_PATH descriptor,
// or uses those of open handles (OpenFiles). So all calls on an open descriptor work as on a local file system. This
// class finds a common file by the descriptor that its node holds, and by its name only after NodeTable has closed that
// descriptor. Thread-safe.
class Objects {
 public:
  explicit Objects(Mount& mount) : mount_(mount) {}

  // Returns the directory in which a request changes a name. Errors: EPERM outside of views; ENOENT if the directory
  // was removed.
  Result<NodeInfo> view_directory(NodeRef parent);
  Result<std::string> child_path(const Job& job, NodeRef parent, const std::string& name) const
      REQUIRES_SHARED(job.overlay.mutex());
  // Opens an object with O_PATH, whether or not it still has its name.
  Result<UniqueFd> open_object(const Job& job, NodeIndex node) REQUIRES_SHARED(job.overlay.mutex());
  // Opens the file that has the node's name, if it is still the node's object. Errors: ESTALE if not; the kernel then
  // looks the name up again.
  struct NamedFile {
    Opened opened;
    struct stat st;
  };
  Result<NamedFile> open_named(const Job& job, NodeIndex node, int access) const
      REQUIRES_SHARED(job.overlay.mutex());
  // Returns the descriptor that a common node holds. If NodeTable has closed that descriptor, opens the file by its
  // name or through an open handle. Errors: ESTALE if another process has removed or replaced the file.
  Result<std::shared_ptr<const UniqueFd>> common_object(NodeIndex node, const NodeInfo& info)
      REQUIRES_SHARED(info.job->overlay.mutex());
  // Whether the name of a common file still refers to the inode that `st` describes.
  bool is_named(NodeIndex node, const NodeInfo& info, const struct stat& st) const
      REQUIRES_SHARED(info.job->overlay.mutex());

  // ---- Before a change
  // If the change must copy the object up, ensures that the job has a layer, and copies the data into the work
  // directory (prepare_copy_up()). Keep the result until the change is done. `keep_bytes`: the change keeps only the
  // first `keep_bytes` of a file. `whole_tree`: the change also copies up everything below a directory. Call before
  // taking Overlay::mutex().
  Result<PreparedCopies> prepare_change(NodeIndex node, off_t keep_bytes = kWholeFile,
                                        bool whole_tree = false);
  // Copies the object up if the layer lacks it, and opens the layer's object with O_PATH.
  Result<UniqueFd> open_for_change(Job& job, NodeIndex node, off_t keep_bytes)
      REQUIRES(job.overlay.mutex());
  // If the node's name no longer leads to its object, replaces the name with an open descriptor of the object. If the
  // name still leads to the object, and the object is not in the layer, returns the result of the name's lookup;
  // otherwise returns nothing. Errors: ESTALE if the name no longer leads to the object and the object is not open.
  Result<std::optional<Located>> settle_name(const Job& job, NodeIndex node)
      REQUIRES(job.overlay.mutex());
  // Ensures that a node without a name holds an object of the layer. Other jobs may still use an object of the base
  // that has lost its name, so changes must go to a copy.
  Status own_removed(Job& job, NodeIndex node) REQUIRES(job.overlay.mutex());
  // Opens an object that is about to lose its name, for processes that have it open or use it as their working
  // directory. Returns nothing if no node has the name, if the name now leads to another object, or for a common file,
  // whose node already holds a descriptor. Charges `uid` for the descriptor. If this user has reached the limit, opens
  // nothing; calls on the removed object then fail with ESTALE, unless it is open.
  NodeNames::Removed keep_object(const Overlay& overlay, NodeName name, const std::string& path,
                                 uid_t uid) const REQUIRES_SHARED(overlay.mutex());
  // As keep_object(), for a request that removes the name. If the file has other names, also begins a pending unlink
  // (PendingUnlinks).
  NodeNames::Removed prepare_removal(const Request& request, NodeRef parent,
                                     const std::string& name, const std::string& path,
                                     const Overlay& overlay) REQUIRES_SHARED(overlay.mutex());
  // For verify_on_open: verifies the base's entry before a process sees it, and moves a damaged entry to the trash.
  // Returns the removed paths.
  std::vector<std::string> trash_if_damaged(NodeRef ref);

  // Runs `change` with Overlay::mutex() held shared. If `change` returns kNeedsExclusive, or if the job has no layer
  // yet, ensures the layer and runs `change` with the mutex held exclusively. Holding the mutex shared is enough
  // because the kernel serializes the changes to a directory within one view. A job that several uids share has several
  // views, so its changes are always exclusive.
  template <class Change>
  std::invoke_result_t<Change, Hold> change_names(Job& job, Change&& change)
      EXCLUDES(job.overlay.mutex());
  // Runs `find`, which uses a node's path, with the mutex held shared. A concurrent rename may make the path wrong. So
  // after ENOENT or ESTALE, runs `find` again with the mutex held exclusively.
  template <class Find>
  static std::invoke_result_t<Find> find_by_path(const Overlay& overlay, Find&& find)
      EXCLUDES(overlay.mutex());

 private:
  Mount& mount_;
};

// Whether the node is a common file although its job may no longer use common files. The job then has its own file
// under this name, which the kernel finds at its next lookup.
bool is_outdated(const NodeInfo& info);
// Opens the object of a node that has lost its name, by the descriptor that the node holds. Errors: ESTALE if it holds
// none.
Result<UniqueFd> reopen_removed(const NodeInfo& info, int flags);
// Returns the kind of the common file at `path`.
CommonKind common_kind(const EntryMap& entries, const std::string& path);
// Returns the maximum size of a common file.
off_t most_bytes_of(CommonKind kind);
// Describes an object that the caller creates; the owner mode decides its owner.
NewObject new_object(const OwnerMode& owners, const Request& request, mode_t mode,
                     dev_t device = 0);

template <class Change>
std::invoke_result_t<Change, Hold> Objects::change_names(Job& job, Change&& change) {
  if (!job.views.shares_uids()) {
    const ReaderLock lock(job.overlay.mutex());
    auto changed = job.overlay.has_layer() ? change(Hold::kShared) : Errno(kNeedsExclusive);
    if (!changed.failed_with(kNeedsExclusive)) return changed;
  }
  const WriterLock lock(job.overlay.mutex());
  CACHESHIM_CHECK(job.ensure_layer(mount_.store.layers()));
  return change(Hold::kExclusive);
}

template <class Find>
std::invoke_result_t<Find> Objects::find_by_path(const Overlay& overlay, Find&& find) {
  {
    const ReaderLock lock(overlay.mutex());
    auto found = find();
    if (!found.failed_with(ENOENT) && !found.failed_with(ESTALE)) return found;
  }
  const WriterLock lock(overlay.mutex());
  return find();
}

}  // namespace cacheshim
