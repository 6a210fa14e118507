// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "fuse/jobs/job_table.h"
#include "fuse/nodes/handle.h"
#include "fuse/nodes/node_table.h"
#include "store/base/store.h"
#include "store/publish/publisher.h"

namespace cacheshim {

// Detects which jobs reject entries of the base (store/publish/rejected_entries.h), from their
// requests.
//
// A preloaded process opens files of the base directly, and the daemon does not see which files it reads. If a job with
// such a process rebuilds an entry, it may have rejected the entry, or it may have written without opening the entry
// first. From then on every job opens this entry through the mount (MountOnlyEntries), so that the daemon sees the next
// job's reads. The first rebuild does not count as a rejection, because the daemon did not see the reads before it.
//
// Thread-safe. Call with no lock held.
class RejectionWatch {
 public:
  // All must outlive this object; `direct` may be null.
  RejectionWatch(const Store& store, const EntryMap& entries, const NodeTable& nodes,
                 const JobTable& jobs, Publisher& publisher, const DirectAccess* direct)
      : store_(store),
        entries_(entries),
        nodes_(nodes),
        jobs_(jobs),
        publisher_(publisher),
        direct_(direct) {}

  // Call when the thread has opened the handle's file, before the reply.
  void note_opened(const FileHandle& handle, pid_t thread) const;
  // Call when the thread has created or removed a name, before the change is published.
  void note_changed(Job& job, const std::string& path, pid_t thread) const;
  // Call when the job has completed the entry but does not publish it now.
  void note_unpublished(Job& job, const std::string& entry) const;
  void note_published(Job& job, const std::string& entry, const PublishReport& report) const;

 private:
  const Store& store_;
  const EntryMap& entries_;
  const NodeTable& nodes_;
  const JobTable& jobs_;
  Publisher& publisher_;
  const DirectAccess* const direct_;
};

}  // namespace cacheshim
