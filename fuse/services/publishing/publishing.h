// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/counters.h"
#include "fuse/jobs/invalidator.h"
#include "fuse/jobs/job_table.h"
#include "fuse/limits/user_limits.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/publishing/rejection_watch.h"
#include "fuse/services/publishing/store_room.h"
#include "fuse/services/publishing/underway.h"
#include "store/base/store.h"
#include "store/layer/layer.h"
#include "store/publish/publisher.h"
#include "store/sys/free_space.h"
#include "store/threads/event_loop.h"
#include "store/threads/fair_queue.h"

namespace cacheshim {

// Publishes entries and ends jobs, and delays the replies that must wait for this work. The work runs in tasks, never
// on the threads that receive requests. Thread-safe; call with no lock held.
class Publishing {
 public:
  struct Parts {  // all must outlive Publishing
    const Store& store;
    const EntryMap& entries;
    Counters& counters;
    NodeTable& nodes;
    const JobTable& jobs;
    Invalidator& invalidator;
    const DirectAccess* direct;  // may be null
    std::chrono::seconds layer_keep;
    UserLimits& limits;
    FreeSpace& space;               // the free space of the store's file system
    std::function<void()> on_full;  // calls resume_if_room() soon; must not block
    // `is_awaited` returns whether any process waits for a name or builds one. `note_arrival` notifies the waiters for
    // `path` that it has changed; `completed` is the entry that the change has completed, or "".
    std::function<bool()> is_awaited;
    std::function<void(const Job& job, const std::string& path, const std::string& completed)>
        note_arrival;
    // Called when the job has published one or more entries.
    std::function<void(Job& job, const PublishReport& report)> note_published;
    // Called before a job ends, when it has published its last entries. Must not block.
    std::function<void(Job& job, Outcome outcome)> note_ending;
  };
  using Answer = std::function<void()>;

  explicit Publishing(const Parts& parts);

  Publisher& publisher() { return publisher_; }
  const Publisher& publisher() const { return publisher_; }
  const RejectionWatch& rejections() const { return rejections_; }
  const StoreRoom& room() const { return room_; }
  const Underway& underway() const { return underway_; }

  // A request to answer. `held`: the directories that the kernel has locked for the request.
  struct Waiter {
    std::vector<NodeId> held;
    Answer answer;
    bool delays_others = false;  // the request holds a kernel lock that other users' requests need
  };
  // Call after a change of `path`. If the change has completed an entry and the job's policy is kComplete, publishes
  // the entry, and answers the request after that. Answers immediately if there is nothing to publish, or if the
  // request delays others. Postpones the entry if the job's user has reached a limit, or if the store is full.
  void completed(Job& job, const std::string& path, Arrival arrival, Waiter waiter);
  // Answers the request once the job is no longer publishing any entry that contains `path`.
  void await(const Job& job, const std::string& path, Waiter waiter);
  // Call when an object has just been created at `path`, or renamed or linked to `path`.
  void note_built(Job& job, const std::string& path);
  // Returns the objects that the job has built under this lock file, and removes them from the job's record.
  std::vector<std::string> take_built(Job& job, std::string_view lock_file) const;
  // Call before a lock is released. Publishes the objects that the job has built under it (`paths`), then calls
  // `answer`.
  void built(Job& job, std::vector<std::string> paths, std::vector<NodeId> held, Answer answer);
  // Makes the job's view show the base's files of `entry` in place of the job's copies, then calls `answer`.
  void show_published(Job& job, const std::string& entry, Answer answer);
  // Publishes the entries that were postponed because one of their files was open for writing, the store was full, or
  // the job's user had reached a limit.
  void retry_postponed(Job& job);
  // Call from an event loop. Once a full store has room again, publishes the postponed entries of all jobs. Returns
  // when to call this function again.
  EventLoop::Clock::time_point resume_if_room();

  // ---- The following functions can take a long time. Those with a parameter `progress` call it on the calling thread.

  // Publishes the complete entries of the job's layer. Stops once `is_wanted` returns false.
  PublishReport publish_job(Job& job, const Publisher::Progress& progress,
                            const IsWanted& is_wanted);
  // Publishes the job's entries, unless `outcome` or the policy forbids it, and detaches the job's layer. If the time
  // passed to finish_within() runs out first, the job stays active.
  PublishReport end_job(Job& job, Outcome outcome, const Publisher::Progress& progress);
  // Discards the job's layer. Returns the number of names in the job's view that the kernel had cached, including names
  // of the base.
  std::uint64_t discard_job(Job& job);

  // Call when the daemon ends. Entries that cannot be published within `time` stay in the layers, for the next daemon.
  // Only the first call has an effect.
  void finish_within(std::chrono::seconds time);
  // Call while the daemon still answers requests. Idempotent.
  void stop() { tasks_.stop(); }

 private:
  using Clock = std::chrono::steady_clock;
  // Queues `task`. A thread of tasks_ calls it with the job when it is the turn of the job's user (FairQueue).
  void post(Job& job, std::function<void(Job&)> task);
  bool is_in_time() const;
  void count(Job& job, const PublishReport& report);
  PublishReport publish_entry(Job& job, const std::string& entry);
  std::shared_ptr<Charge> charge_for(const Job& job) const;
  void note_full(Job& job, const std::string& entry);
  bool postpone_if_full(Job& job, const std::string& entry);
  struct Dropped {
    // The number of names in the job's view that the kernel had cached, including names of the base.
    std::size_t known = 0;
    std::optional<Layer> layer;  // the layer to remove; none if it is kept
  };
  Dropped drop_layer(Job& job, Outcome outcome) EXCLUDES(job.overlay.mutex());
  void remove_layer(const Job& job, Dropped dropped) const;

  const Parts parts_;
  Publisher publisher_;
  const RejectionWatch rejections_;
  StoreRoom room_;
  Underway underway_;
  std::atomic<Clock::rep> deadline_{Clock::time_point::max().time_since_epoch().count()};
  FairQueue tasks_{{.threads = 64, .running = 4}};
};

}  // namespace cacheshim
