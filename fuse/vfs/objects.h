// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fuse/mount.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// The objects that nodes stand for: where they are, and how they get into the layer before a change.
//
// Not all are found by their name. A file or directory may be open when its name is removed: in this view, or in the
// base by another job, gc, verify or a process beside the mount. The node then finds it by an O_PATH descriptor of its
// own, or by the descriptors of the open handles (OpenFiles). All calls on an open descriptor then work as on a local
// file system. Common files are never found by name once the kernel knows them (NodeTable). Thread-safe.
class Objects {
 public:
  explicit Objects(Mount& mount) : mount_(mount) {}

  // An object's parent directory in a view, or the error for anything else.
  Result<NodeInfo> view_directory(NodeRef parent);
  Result<std::string> child_path(const Job& job, NodeRef parent, const std::string& name) const
      REQUIRES_SHARED(job.overlay.mutex());
  // An O_PATH descriptor of an object, wherever it is.
  Result<UniqueFd> open_object(const Job& job, NodeIndex node) REQUIRES_SHARED(job.overlay.mutex());
  // The descriptor that a common node holds, or, once the table has closed it, the file that its name or an open
  // descriptor leads to. Errors: ESTALE if others have removed or replaced the file.
  Result<std::shared_ptr<const UniqueFd>> common_object(NodeIndex node, const NodeInfo& info)
      REQUIRES_SHARED(info.job->overlay.mutex());
  // Whether the name of a common file leads to `st`.
  bool is_named(NodeIndex node, const NodeInfo& info, const struct stat& st) const
      REQUIRES_SHARED(info.job->overlay.mutex());

  // ---- Before a change
  // Copies the node up, as far as that can be done before Overlay::mutex() is taken: Overlay::prepare_copy_up().
  Result<PreparedCopies> prepare_change(NodeIndex node, off_t keep_bytes = kWholeFile,
                                        bool whole_tree = false);
  // An O_PATH descriptor of the layer's own copy, made if need be.
  Result<UniqueFd> open_for_change(Job& job, NodeIndex node, off_t keep_bytes)
      REQUIRES(job.overlay.mutex());
  // If the node's name no longer leads to its object, the node gets an open descriptor of it in place of the name.
  // Errors: ESTALE if it is not open.
  Status settle_name(const Job& job, NodeIndex node) REQUIRES(job.overlay.mutex());
  // Ensures that a node without a name holds an object of the layer. The base's object is common to all jobs, whether it
  // still has a name or not.
  Status own_removed(Job& job, NodeIndex node) REQUIRES(job.overlay.mutex());
  // An O_PATH descriptor of the object that is about to lose its name, for processes that have it open or have it as
  // their directory; nothing if the kernel knows no node of that name.
  NodeTable::Removed keep_object(const Overlay& overlay, NodeIndex parent, const std::string& name,
                                 const std::string& path) const REQUIRES_SHARED(overlay.mutex());
  // The same for a request that removes the name.
  NodeTable::Removed prepare_removal(const Overlay& overlay, NodeRef parent,
                                     const std::string& name, const std::string& path)
      REQUIRES_SHARED(overlay.mutex());
  // verify_on_open: what has gone to trash because the base's entry, which somebody is about to see, is damaged.
  std::vector<std::string> put_damaged_away(NodeRef ref);

  // Changes names with Overlay::mutex() held shared if that does, else exclusively. Within one view the kernel lets only
  // one change of a directory go on at a time; jobs that several uids share have no such guard.
  template <class Change>
  std::invoke_result_t<Change, Hold> change_names(Job& job, Change&& change)
      EXCLUDES(job.overlay.mutex());
  // Finds something by a node's path, which a change may make wrong as long as the mutex is held shared only: what is
  // not found is looked up again while no change goes on.
  template <class Find>
  static std::invoke_result_t<Find> find_by_path(const Overlay& overlay, Find&& find)
      EXCLUDES(overlay.mutex());

 private:
  Mount& mount_;
};

// Whether the kernel has looked up a common file for a job that must leave it alone from now on. The job then has a file
// of its own of that name, which the kernel finds at its next lookup.
bool is_outdated(const NodeInfo& info);
Common common_kind(const EntryMap& entries, const std::string& path);
off_t most_bytes_of(Common kind);
// What the caller makes, and for whom, by the rule of owners.
NewObject new_object(const OwnerRule& owners, const Request& request, mode_t mode,
                     dev_t device = 0);

template <class Change>
std::invoke_result_t<Change, Hold> Objects::change_names(Job& job, Change&& change) {
  if (!job.shares_uids()) {
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
