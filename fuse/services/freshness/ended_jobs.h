// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "fuse/jobs/job_table.h"
#include "fuse/limits/user_limits.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/freshness/invalidation.h"
#include "store/threads/event_loop.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Makes JobTable forget jobs that have ended (JobTable::forget_ended()). JobTable must keep a job as long as the kernel
// has cached names of its view, and the kernel caches each name until it needs the memory. So this object makes the
// kernel forget the names in one pass, and makes JobTable forget the job in a later pass. A job stays as long as a
// process uses its view, for example as the process's working directory or through an O_PATH descriptor.
//
// Before Linux 6.18, once the kernel has forgotten a view's names, a process whose working directory is in the view
// gets ENOENT from getcwd(3) until the view is looked up again.
class EndedJobs {
 public:
  using Clock = EventLoop::Clock;
  static constexpr std::chrono::seconds kInterval{2};
  static constexpr std::size_t kBatch = 16384;  // the approximate maximum number of names per pass

  // All must outlive this object. The work runs on `tasks`.
  struct Parts {
    JobTable& jobs;
    const NodeTable& nodes;
    UserLimits& limits;
    const Invalidation& invalidation;
    TaskQueue& tasks;
  };
  EndedJobs(EventLoop& loop, const Parts& parts);

  // Call when there may be jobs to forget. Takes no lock of this object, and does not block.
  void request() {
    if (!is_requested_.exchange(true)) task_.wake();
  }

 private:
  Clock::time_point tend();
  void forget();
  void add_names_of(const Job& job, std::vector<Notification>& notifications) const;
  void add(NodeRef node, NodeRef directory, const std::string& name,
           std::vector<Notification>& notifications) const;

  const Parts parts_;
  std::atomic<bool> is_requested_{false};
  std::atomic<bool> is_at_work_{false};
  std::size_t passes_ = 0;    // used only by forget()
  Clock::time_point next_{};  // the earliest time of the next pass; used only by tend()
  EventLoop::Task task_;      // keep last: it uses the other members
};

}  // namespace cacheshim
