// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/change_guard.h"

#include <fcntl.h>

#include <memory>
#include <utility>

namespace cacheshim {

Status ChangeGuard::note_change(const Request& request, NodeId ino) {
  if (!mount_.trust.is_restricted()) return {};
  const NodeInfo info = mount_.nodes.info(decode(ino).node);
  if (info.kind != NodeKind::kObject && info.kind != NodeKind::kRoot) return {};
  std::shared_ptr<Job> own;
  if (info.kind == NodeKind::kRoot) {
    CACHESHIM_TRY(found, own_tree_.job_of(request));
    own = std::move(found);
  }
  Job& job = own != nullptr ? *own : *info.job;
  if (job.policy.is_refused()) return {};
  const std::string why = mount_.trust.why_refused(request.caller);
  return why.empty() ? Status() : job.refuse_publishing(why);
}

// An open of a lock file for reading counts as a change, because flock(2) works on such a descriptor too.
Status ChangeGuard::note_open(const Request& request, NodeId ino, int flags) {
  if (!mount_.trust.is_restricted()) return {};
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0) return note_change(request, ino);
  const NodeRef ref = decode(ino);
  const NodeInfo info = mount_.nodes.info(ref.node);
  if (info.kind != NodeKind::kObject || info.job->policy.is_refused()) return {};
  const bool is_lock = [&] {
    if (info.common != CommonKind::kNone) return true;  // a common file may have lost its name
    const ReaderLock lock(info.job->overlay.mutex());
    const auto path = mount_.nodes.path(ref.node);
    return path && info.job->overlay.locks().files.is_shared_name(*path);
  }();
  return is_lock ? note_change(request, ino) : Status();
}

// The view's root has mode 0700, but modes do not restrict root or a process with capabilities. If one of these
// processes reached the view by its path, and not through the symlinks in the mount's root, it could run files that
// another user has placed there. The check also covers files of the base, because a copy-up may bring them into the
// layer at any time. Checking OPEN, CREATE and READLINK is enough: the kernel never answers these from its cache.
bool ChangeGuard::is_kept_from(const Request& request, const NodeInfo& info) {
  return info.kind == NodeKind::kObject && info.job->views.is_closed_to(request.caller.uid);
}

}  // namespace cacheshim
