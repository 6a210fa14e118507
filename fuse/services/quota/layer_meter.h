// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <utility>

#include "common/result.h"
#include "fuse/jobs/job_table.h"
#include "fuse/limits/layer_use.h"
#include "fuse/nodes/node_table.h"
#include "fuse/nodes/open_files.h"
#include "fuse/services/quota/silent_growth.h"
#include "store/threads/event_loop.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Measures the layers whose owners are near a limit (LayerUse), one at a time. A layer's owner decides how many files
// the layer has, and so how long a walk through it takes. Therefore, after a walk, the daemon does not measure the
// layer again for kRest times the duration of the walk.
class LayerMeter {
 public:
  using Clock = EventLoop::Clock;
  static constexpr std::chrono::seconds kInterval{1};
  static constexpr int kRest = 20;

  // All must outlive this object. The walks run on `tasks`.
  LayerMeter(const JobTable& jobs, const NodeTable& nodes, const OpenFiles& open_files,
             TaskQueue& tasks, SilentGrowth::Invalidate invalidate)
      : jobs_(jobs),
        nodes_(nodes),
        open_files_(open_files),
        tasks_(tasks),
        silent_growth_(tasks, std::move(invalidate)) {}

  // Call when a layer may be due. Takes no lock. Wakes `task`, which calls tend(), only if no call to tend() is due
  // anyway: while a user is near a limit, every request may call this function.
  void request(const EventLoop::Task& task) {
    if (!is_requested_.exchange(true)) task.wake();
  }
  // Call from an event loop. Starts to measure one layer if one is due. Returns when to call tend() again.
  Clock::time_point tend();
  // The files that this object measures once per second. Call request() after SilentGrowth::add().
  SilentGrowth& silent_growth() { return silent_growth_; }
  // Measures the job's layer now. Can take a long time; call with no lock held. Errors: those of reading a directory;
  // the layer's count then stays unchanged.
  Status measure(Job& job) const;

 private:
  bool begin_one(Clock::time_point now);
  LayerSize size_of_nameless(const Job& job) const;

  const JobTable& jobs_;
  const NodeTable& nodes_;
  const OpenFiles& open_files_;
  TaskQueue& tasks_;
  SilentGrowth silent_growth_;
  std::atomic<bool> is_requested_{false};
  std::atomic<bool> is_measuring_{false};
};

}  // namespace cacheshim
