// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "fuse/jobs/job.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/freshness/invalidation.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Invalidates cached attributes when the first user other than root claims a job's view. Until then, the view's
// attributes show the daemon's user as the owner, and the kernel may have cached them. The daemon invalidates them
// before it answers that user's first request, so the user's next calls see the new owner. Whatever locks the request
// holds, its answer can wait for this invalidation: only attributes have changed, and the kernel invalidates attributes
// without waiting for a lock. If the kernel has cached much of the view, the invalidation takes a long time, so a
// separate thread sends it. Thread-safe.
class ClaimInvalidation {
 public:
  ClaimInvalidation(const NodeTable& nodes, const Invalidation& invalidation)
      : nodes_(nodes), invalidation_(invalidation) {}

  // Call for a request by which a caller enters a job's view; `answer` sends the reply. Calls `answer` once the old
  // attributes are invalidated. Calls it immediately if no invalidation is needed, or if `asked` is not 0 and another
  // request has already begun the invalidation. `asked`: the node whose attributes the reply contains; 0 if the reply
  // contains none, or those of the view's root.
  void answer_entered(Job& job, NodeIndex asked, std::function<void()> answer);
  // Call while the daemon still answers requests. Idempotent.
  void stop() { tasks_.stop(); }

 private:
  void invalidate(const Job& job, NodeIndex asked) const;

  const NodeTable& nodes_;
  const Invalidation& invalidation_;
  TaskQueue tasks_{1};  // a single thread, to serialize claims
};

}  // namespace cacheshim
