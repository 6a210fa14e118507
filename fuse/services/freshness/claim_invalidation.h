// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "fuse/jobs/job.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/freshness/invalidation.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Handles the claim of a job's view by the first user other than root. The kernel may have cached attributes of the
// view that show the daemon's user as the owner. The daemon invalidates them before that user gets the first answer, so
// that the user's next calls see the new attributes. Only attributes have changed, and the kernel invalidates
// attributes without waiting for a lock. So the answer can wait for the invalidation, whatever locks its request holds.
// The invalidation can take a long time if the kernel has cached much of the view; therefore a separate thread sends
// it. Thread-safe.
class ClaimInvalidation {
 public:
  ClaimInvalidation(const NodeTable& nodes, const Invalidation& invalidation)
      : nodes_(nodes), invalidation_(invalidation) {}

  // Calls `answer` once the old attributes are invalidated; immediately if that is not needed, or
  // if `asked` is not 0 and another request has begun the invalidation. `answer` replies to the
  // request by which a caller enters a job's view. `asked`: the node whose attributes the reply
  // contains; 0 if it is the view's root, or if there is none.
  void answer_entered(Job& job, NodeIndex asked, std::function<void()> answer);
  // Call while the daemon still answers requests. Idempotent.
  void stop() { tasks_.stop(); }

 private:
  void invalidate(const Job& job, NodeIndex asked) const;

  const NodeTable& nodes_;
  const Invalidation& invalidation_;
  TaskQueue tasks_{1};  // a single thread, so that claims are serialized
};

}  // namespace cacheshim
