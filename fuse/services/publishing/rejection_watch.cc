// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/publishing/rejection_watch.h"

#include <fcntl.h>

#include "store/sys/sys.h"

namespace cacheshim {

void RejectionWatch::note_opened(const FileHandle& handle, pid_t thread) const {
  Job& job = *handle.job;
  const bool reads_base = !handle.in_upper && !handle.writable;
  if (handle.is_lock_file || !job.views.are_private()) return;
  if (!reads_base && !(handle.writable && job.reads.has_any())) return;
  const auto path = [&] {
    const ReaderLock lock(job.overlay.mutex());
    return nodes_.path(handle.node);
  }();
  if (!path) return;
  if (!reads_base) return note_changed(job, *path, thread);
  const auto ref = entries_.find(*path);
  if (ref && ref->counts_rebuilds()) job.reads.note_read(ref->unit(), thread);
}

// A job that writes a temporary file, or adds a file to the entry, does not reject the entry. In these cases, the base
// has no file at `path`.
void RejectionWatch::note_changed(Job& job, const std::string& path, pid_t thread) const {
  if (!job.reads.has_any()) return;
  const auto ref = entries_.find(path);
  if (!ref || !ref->counts_rebuilds() || entries_.is_beside_entry(path)) return;
  const std::string unit = ref->unit();
  if (!job.reads.has_read(unit, thread)) return;
  if (!sys::open_beneath(store_.base(), path, O_PATH | O_NOFOLLOW)) return;
  job.reads.note_rejected(unit);
}

void RejectionWatch::note_unpublished(Job& job, const std::string& entry) const {
  if (job.reads.has_rejected(entry)) publisher_.note_unpublished_rebuild(entry, job.publishing);
}

void RejectionWatch::note_published(Job& job, const std::string& entry,
                                    const PublishReport& report) const {
  if (!report.is_unread_rebuild || direct_ == nullptr || job.filter.counts().opens == 0) return;
  if (!direct_->mount_only.add(entry)) return;
  for (const auto& one : jobs_.all()) one->filter.add(entry, /*tree=*/true);
}

}  // namespace cacheshim
