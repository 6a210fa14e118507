// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fuse/nodes/node_ref.h"
#include "store/publish/publisher.h"

namespace cacheshim {

class Job;

// Invalidates what the kernel keeps of names, attributes and data. Call with no lock held, unless a method says
// otherwise. Thread-safe.
class Invalidator {
 public:
  using Done = std::function<void()>;

  virtual ~Invalidator() = default;

  // What `publisher` has published: invalidates it in the other views, then calls `answer`, then invalidates what the
  // publisher's own view now sees of the base. `held` are the directories that the request to be answered holds.
  virtual void published(const PublishReport& report, const Job& publisher,
                         std::vector<NodeId> held, Done answer) = 0;
  virtual void published_and_wait(const PublishReport& report, const Job& publisher) = 0;
  // The job's view now sees the base's files where the job had copies. Then calls `answer`.
  virtual void uncovered(const PublishReport& report, const Job& job, Done answer) = 0;
  // These paths of the base, with all that was below them, are gone.
  virtual void gone(const std::vector<std::string>& paths) = 0;
  virtual void gone_and_wait(const std::vector<std::string>& paths) = 0;
  // The job's layer is gone, and its nodes are about to be dropped. Requires: Overlay::mutex() held exclusively. What it
  // returns invalidates them, and waits: call it once the mutex is released.
  virtual Done layer_dropped(const Job& job) = 0;
};

}  // namespace cacheshim
