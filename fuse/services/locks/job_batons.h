// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "fuse/jobs/job_table.h"
#include "fuse/nodes/handle.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/locks/batons.h"
#include "store/layer/baton_record.h"
#include "store/profiles/entry_map.h"

namespace cacheshim {

// The batons of all jobs: files that exclude other processes by their existence (O_EXCL), as profiles define them. Each
// job's layer records the job's batons and their creators, so that the next daemon can also watch the creators.
// Thread-safe.
class JobBatons {
 public:
  // All must outlive this object.
  JobBatons(const EntryMap& entries, const NodeTable& nodes, const JobTable& jobs)
      : entries_(entries), nodes_(nodes), jobs_(jobs) {}

  // Call before any other method. Also watches the batons that an earlier daemon has recorded. `reap` must remove a
  // baton whose creator has died; the loop calls it with no lock held.
  void start(EventLoop& loop, std::function<void(const Baton&)> reap);
  void stop() { batons_.reset(); }

  // Call when `thread` has created the handle's file with O_EXCL.
  void note_made(const FileHandle& handle, pid_t thread);
  // Call when the job has removed or locked the file at `path`. A locked baton excludes other processes by its lock, so
  // the daemon does not remove it when its creator dies.
  void forget(const Job& job, const std::string& path);
  bool is_baton(const std::string& path) const;

 private:
  void watch_recorded_batons();
  void record_again(Job& job, const BatonRecord& record);

  const EntryMap& entries_;
  const NodeTable& nodes_;
  const JobTable& jobs_;
  std::unique_ptr<Batons> batons_;
};

}  // namespace cacheshim
