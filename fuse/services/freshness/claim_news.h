// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "fuse/jobs/job.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/freshness/invalidation.h"
#include "store/sys/task_queue.h"

namespace cacheshim {

// Handles the first user other than root, who claims a job's view. The kernel may have cached
// attributes of the view as root's. They are invalidated before that user gets an answer, so that
// the user's next calls see the new ones. Only attributes have changed, and the kernel invalidates
// attributes without waiting. So an answer can wait for this whatever locks its request holds. It
// can take long if the kernel has cached much of the view; therefore a separate thread does it.
// Thread-safe.
class ClaimNews {
 public:
  ClaimNews(const NodeTable& nodes, const Invalidation& invalidation)
      : nodes_(nodes), invalidation_(invalidation) {}

  // Calls `answer`, with which a caller enters a job's view, once the kernel knows the view's
  // owner. `asked`: the node whose attributes the answer contains, unless it is the view's root; or
  // 0.
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
