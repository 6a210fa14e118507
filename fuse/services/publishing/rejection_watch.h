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

// Detects, from jobs' requests, which jobs reject entries of the base (store/publish/rejected_entries.h).
//
// A preloaded process opens files of the base directly, so the daemon does not see which files it reads. If a job with
// a preloaded process rebuilds an entry, the daemon cannot tell whether the job has rejected the entry or has never
// read it. So this first rebuild does not count as a rejection. From then on, every job opens the entry through the
// mount (MountOnlyEntries), and the daemon sees the next job's reads.
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

  // Call after the thread has opened the handle's file, and before the reply.
  void note_opened(const FileHandle& handle, pid_t thread) const;
  // Call after the thread has created or removed a name, and before the change is published.
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
