// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "fuse/jobs/job.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/freshness/invalidation.h"
#include "store/sys/task_queue.h"

namespace cacheshim {

// The first user other than root claims a job's view. The kernel may keep attributes of the view as root's: they are
// invalidated before that user is answered, whose next calls then see their own. Only attributes have changed. The
// kernel waits for nothing when it invalidates these, so an answer can wait for it whatever its request holds; but it
// takes a while if the kernel knows much of the view, hence a thread of its own. Thread-safe.
class ClaimNews {
 public:
  ClaimNews(const NodeTable& nodes, const Invalidation& invalidation)
      : nodes_(nodes), invalidation_(invalidation) {}

  // Calls `answer`, by which a caller has entered a job's view, once the kernel knows whose view it is. `asked`: the
  // node whose attributes are in the answer, unless it is the view's root; or 0.
  void answer_entered(Job& job, NodeIndex asked, std::function<void()> answer);
  // Call while requests are answered still. Idempotent.
  void stop() { tasks_.stop(); }

 private:
  void invalidate(const Job& job, NodeIndex asked) const;

  const NodeTable& nodes_;
  const Invalidation& invalidation_;
  TaskQueue tasks_{1};  // so that further callers wait for the first
};

}  // namespace cacheshim
