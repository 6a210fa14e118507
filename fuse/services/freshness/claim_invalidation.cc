// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/claim_invalidation.h"

#include <utility>
#include <vector>

#include "store/threads/guard.h"

namespace cacheshim {

// If the daemon invalidates a node while the kernel waits for that node's attributes, the kernel discards the
// attributes in the reply and checks permissions against the old ones. So invalidate() skips the node of this request,
// and the daemon answers later requests for a node's attributes without waiting for the invalidation.
void ClaimInvalidation::answer_entered(Job& job, NodeIndex asked, std::function<void()> answer) {
  if (job.views.claim.begin_invalidation()) {
    tasks_.post([this, job = job.shared_from_this(), asked, answer = std::move(answer)] {
      (void)run_guarded("the invalidation for a job's first user", [&] {
        job->record_owner();
        invalidate(*job, asked);
      });
      job->views.claim.end_invalidation();
      answer();
    });
  } else if (asked == 0 && job.views.claim.is_made() && !job.views.claim.is_invalidated()) {
    tasks_.post(std::move(answer));
  } else {
    answer();
  }
}

// Skips the view's root: the kernel requests the root's attributes at every lookup of the view's
// name, and before it denies access.
void ClaimInvalidation::invalidate(const Job& job, NodeIndex asked) const {
  std::vector<NodeId> nodes;
  for (const NodeNames::NamedNode& named : nodes_.names().all_of(&job)) {
    if (named.node != asked) nodes.push_back(encode({named.node, 0}));
  }
  invalidation_.notifier().invalidate_attributes(nodes);
}

}  // namespace cacheshim
