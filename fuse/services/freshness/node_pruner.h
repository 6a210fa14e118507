// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>

#include "fuse/jobs/job_table.h"
#include "fuse/limits/user_limits.h"
#include "fuse/nodes/node_table.h"
#include "fuse/nodes/open_files.h"
#include "fuse/services/freshness/invalidation.h"
#include "store/threads/event_loop.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Makes the kernel forget names of files that no process has open, in the views of users who are near their limit of
// nodes (max_nodes). The kernel caches each name that it has looked up until it needs the memory, and the daemon must
// keep the node of each cached name.
//
// The kernel must forget only files: a directory may be a process's working directory, and getcwd(3) would then fail in
// that process.
class NodePruner {
 public:
  using Clock = EventLoop::Clock;
  static constexpr std::chrono::seconds kInterval{1};
  static constexpr std::size_t kBatch = 16384;

  // All must outlive this object. The work runs on `tasks`.
  struct Parts {
    const JobTable& jobs;
    const NodeTable& nodes;
    const OpenFiles& open_files;
    UserLimits& limits;
    const Invalidation& invalidation;
    TaskQueue& tasks;
  };
  explicit NodePruner(const Parts& parts) : parts_(parts) {}

  // Call when a user who is near the limit makes a request. Takes no lock. Wakes `task`, which calls tend().
  void request(const EventLoop::Task& task) {
    if (!is_requested_.exchange(true)) task.wake();
  }
  // Call from an event loop. Prunes the views that need it, on `tasks`. Returns when to call tend() again.
  Clock::time_point tend();

 private:
  UserAccount& account_of(const Job& job) const;
  void prune(const Job& job) const;
  std::size_t prune_batch(const Job& job) const;

  const Parts parts_;
  std::atomic<bool> is_requested_{false};
  std::atomic<bool> is_pruning_{false};
  Clock::time_point next_{};  // the earliest time to prune; used only by tend()
};

}  // namespace cacheshim
