// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "fuse/vfs/filesystem.h"

// Who changes what: every request that changes a layer comes by here first. A descriptor that is handed on
// is looked at again when it is written to; what is written by a mapping, or by the kernel itself
// (passthrough), belongs to whoever opened the file.
namespace cacheshim {

// Call before the change; an error is the request's. Costs nothing where everybody may publish.
Status Filesystem::note_change(const Request& request, NodeId ino) {
  if (!trust_.is_restricted()) return {};
  const NodeInfo info = nodes_.info(decode(ino).node);
  if (info.kind != NodeKind::kObject && info.kind != NodeKind::kRoot) return {};
  Job& job = info.kind == NodeKind::kRoot ? job_of(request) : *info.job;
  if (job.is_refused()) return {};
  const std::string why = trust_.why_refused(request.caller);
  return why.empty() ? Status() : job.refuse(why);
}

// A lock file counts as changed by who only reads it: that is enough to lock it.
Status Filesystem::note_open(const Request& request, NodeId ino, int flags) {
  if (!trust_.is_restricted()) return {};
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0) return note_change(request, ino);
  const NodeRef ref = decode(ino);
  const NodeInfo info = nodes_.info(ref.node);
  if (info.kind != NodeKind::kObject || info.job->is_refused()) return {};
  const bool is_lock = [&] {
    if (info.common != Common::kNone) return true;  // it may have lost its name
    const std::shared_lock lock(info.job->overlay.mutex());
    const auto path = nodes_.path(ref.node);
    return path && info.job->overlay.is_shared_lock_name(*path);
  }();
  return is_lock ? note_change(request, ino) : Status();
}

// The view's root is 0700, but modes do not restrict root or a process with capabilities. Such a process that
// comes by a path, and not through the symlinks in the mount's root, would run files that another user has put
// there. A file of the base may also become the layer's at any time. The kernel never answers OPEN, CREATE and
// READLINK by itself.
bool Filesystem::is_kept_from(const Request& request, const NodeInfo& info) {
  return info.kind == NodeKind::kObject && info.job->is_closed_to(request.caller.uid);
}

}  // namespace cacheshim
