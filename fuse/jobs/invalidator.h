// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fuse/nodes/node_ref.h"
#include "store/publish/publisher.h"

namespace cacheshim {

class Job;

// Invalidates the names, attributes and data that the kernel caches. Call with no lock held, unless
// a method says otherwise. Thread-safe.
class Invalidator {
 public:
  using Done = std::function<void()>;

  virtual ~Invalidator() = default;

  // Call before a request waits for a long operation of the daemon. `directories`: the directories that the kernel has
  // locked for the request. While the result exists, the daemon does not penalize the request's user (LateOwners) for
  // invalidations that these locks block. Destroy the result once the request is answered.
  virtual std::shared_ptr<void> hold(std::vector<NodeId> directories) = 0;
  // First invalidates `publisher`'s published names in the other views, then calls `answer`, and last invalidates the
  // names of the base that the publisher's own view now shows. `held`: the directories that the kernel has locked for
  // the request that `answer` answers.
  virtual void published(const PublishReport& report, const Job& publisher,
                         std::vector<NodeId> held, Done answer) = 0;
  // Invalidates `publisher`'s published names in the other views. Blocks until the kernel has processed the
  // invalidations.
  virtual void published_and_wait(const PublishReport& report, const Job& publisher) = 0;
  // Call when the job's view now shows the base's files in place of the job's copies. Invalidates the names, then calls
  // `answer`.
  virtual void uncovered(const PublishReport& report, const Job& job, Done answer) = 0;
  // Call when a request changes an object's attributes in a way that the kernel cannot know. Call before the reply, and
  // with the job's Overlay::mutex() held: otherwise the kernel could fetch the old attributes again. Does not block.
  virtual void attributes_changed(const Job& job, NodeIndex node) = 0;
  // Call when these files were added to the base, but not from a job's layer.
  virtual void added(const std::vector<std::string>& paths) = 0;
  // Call when these paths of the base, and everything below them, were removed.
  virtual void removed(const std::vector<std::string>& paths) = 0;
  // As removed(), but blocks until the kernel has processed the invalidations.
  virtual void removed_and_wait(const std::vector<std::string>& paths) = 0;
  // Call when the job has dropped its layer, before the names of the job's nodes are dropped. Requires:
  // Overlay::mutex() held exclusively. Returns a function that invalidates the nodes and blocks until the kernel has
  // processed the invalidations. Call that function once the mutex is released.
  virtual Done layer_dropped(const Job& job) = 0;
};

}  // namespace cacheshim
