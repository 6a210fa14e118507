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

// Finds out which jobs reject entries of the base (store/publish/rejected_entries.h): what the requests tell of it.
//
// A preloaded process opens files of the base by itself, and the daemon does not see which. If such a job rebuilds an entry, it
// may have rejected it or have written without a look at it. From then on every job opens this entry through the mount
// (MountOnlyEntries), so that the next job's reads are seen. Such a first rebuild does not count.
//
// Thread-safe. Call with no lock held.
class RejectionWatch {
 public:
  // All must outlive it; `direct` may be null.
  RejectionWatch(const Store& store, const EntryMap& entries, const NodeTable& nodes,
                 const JobTable& jobs, Publisher& publisher, const DirectFolders* direct)
      : store_(store),
        entries_(entries),
        nodes_(nodes),
        jobs_(jobs),
        publisher_(publisher),
        direct_(direct) {}

  // The thread has opened this; before it is answered.
  void note_opened(const FileHandle& handle, pid_t thread) const;
  // The thread has given a name to something, or taken the name away; before it is published.
  void note_changed(Job& job, const std::string& path, pid_t thread) const;
  // The job has completed the entry, and does not publish it now.
  void note_unpublished(Job& job, const std::string& entry) const;
  void note_published(Job& job, const std::string& entry, const PublishReport& report) const;

 private:
  const Store& store_;
  const EntryMap& entries_;
  const NodeTable& nodes_;
  const JobTable& jobs_;
  Publisher& publisher_;
  const DirectFolders* const direct_;
};

}  // namespace cacheshim
