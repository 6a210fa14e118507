// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fuse/control/ticker.h"
#include "fuse/jobs/caller.h"
#include "fuse/jobs/idle_jobs.h"
#include "fuse/jobs/job_rights.h"
#include "fuse/jobs/job_table.h"
#include "fuse/jobs/publish_trust.h"
#include "fuse/limits/layer_use.h"
#include "fuse/limits/user_limits.h"
#include "fuse/mount_options.h"
#include "fuse/nodes/handle.h"
#include "fuse/nodes/io_modes.h"
#include "fuse/nodes/node_table.h"
#include "fuse/nodes/open_files.h"
#include "fuse/requests/pending_replies.h"
#include "fuse/services/eviction/store_keeper.h"
#include "fuse/services/freshness/cache_timeouts.h"
#include "fuse/services/freshness/claim_invalidation.h"
#include "fuse/services/freshness/ended_jobs.h"
#include "fuse/services/freshness/invalidation.h"
#include "fuse/services/freshness/node_pruner.h"
#include "fuse/services/freshness/pending_unlinks.h"
#include "fuse/services/locks/job_batons.h"
#include "fuse/services/locks/lock_removals.h"
#include "fuse/services/locks/lock_table.h"
#include "fuse/services/locks/named_locks.h"
#include "fuse/services/metrics/metrics_listener.h"
#include "fuse/services/publishing/publishing.h"
#include "fuse/services/quota/layer_meter.h"
#include "fuse/services/remote/make_remote_entries.h"
#include "fuse/services/shared_files/shared_files.h"
#include "fuse/services/single_flight/single_flight.h"
#include "store/base/store.h"
#include "store/sys/rename_flags.h"
#include "store/threads/event_loop.h"
#include "store/threads/fair_queue.h"
#include "store/threads/mutex.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// The state and the services of a mount, in the order of their dependencies, and the functions that start and stop the
// services. The operations of vfs/ and the requests of control/ use these parts. Each part is thread-safe by itself.
class Mount {
 public:
  // `the_store` and `profiles` must outlive this object.
  Mount(const Store& the_store, const std::vector<Profile>& profiles, MountOptions mount_options);
  ~Mount();
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  // Makes the mount a plain overlay: one view, without the mount's own directories, jobs and publishing. `lowers`, the
  // topmost first, must stay open. Empty `upper` and `work` make it read-only. Call before any other method.
  Status show_plain(const std::vector<int>& lowers, UniqueFd upper, UniqueFd work);
  // Starts the services: invalidation, the watch of the base, the end of idle jobs. `device`: the session's descriptor.
  // `reap` removes a baton whose creator has died.
  void start(int device, std::function<void(const Baton&)> reap);
  // Call during FUSE_INIT, after start().
  void connected(const Protocol& agreed);
  // Call before the mount goes away. Records the closing in the run directory (closing_record.h), fails waiting lock
  // requests with ENOLCK, ends waits for builds and for a job's end, and prevents new waits. Returns once the clients
  // of the control file have read their answers, or after 1 second.
  void fail_waits() EXCLUDES(closing_mutex_);
  // As fail_waits(), but calls reopen_waits() after `time` if the mount still exists.
  void close_waits_for(std::chrono::seconds time) EXCLUDES(closing_mutex_);
  // Call if the mount stays after all: allows waits again. Does nothing after fail_waits().
  void reopen_waits() EXCLUDES(closing_mutex_);
  bool is_closing() const { return is_closing_; }
  // Finishes queued tasks and their invalidations, except publishing that would take more than 10 s, and then sends
  // entries to the remote tier for at most another 10 s. Call while requests are still served: a request may wait for a
  // task, and an invalidation for the reply to a request. Later tasks are dropped.
  void finish_tasks();
  // Call after the last request. The records of active jobs stay for the next daemon.
  void stop();

  // Charges a user; see Charge::take().
  Result<Charge> charge(uid_t uid, Limit limit, std::uint64_t count = 1) {
    return Charge::take(&limits.account(uid), limit, count);
  }
  // Requests a measurement of the layers that are due for one; see LayerMeter::request().
  void request_measuring() { layer_meter.request(measuring_); }
  // Makes the kernel forget names soon; see NodePruner::request().
  void request_pruning() { node_pruner.request(pruning_); }
  bool uses_io_uring() const { return uses_io_uring_; }
  bool is_base_local() const { return is_base_local_; }

  const Store& store;
  const MountOptions options;
  const EntryMap entries;
  const std::time_t started;
  // How far the file systems of the base and of the layers support the flags of renameat2(2); nothing if this is
  // unknown, as in a plain overlay.
  const std::optional<sys::RenameSupport> base_renames;
  const std::optional<sys::RenameSupport> layer_renames;
  Counters counters;
  UserLimits limits;  // declared before the parts that charge users
  FreeSpace layer_space{store.layers()};
  FreeSpace store_space{store.staging()};
  NodeTable nodes;
  HandleTable handles;
  OpenFiles open_files;
  IoModes io_modes;
  std::atomic<int> releases{0};  // RELEASE requests in progress whose locks are not released yet
  // Runs the tasks that must not be delayed: the tasks for lock requests and control files, because clients wait for
  // them, and the tasks for invalidation and for the watch of the base. `loop` is separate, because its tasks may wait
  // for a job's lock or for a disk.
  EventLoop prompt_loop;
  EventLoop loop;  // runs the tasks of all other services
  LockTable locks{counters, prompt_loop, lock_system()};
  BaseLocks base_locks{entries};
  LockRemovals lock_removals{loop, locks, base_locks.files};
  NamedLocks named_locks{locks, base_locks.named};
  CallerJobs callers;
  const LockAccess lock_access;
  const PublishTrust trust;
  const NodeIndex jobs_dir;
  JobTable jobs;
  JobRights rights{jobs, callers};
  Invalidation invalidation{nodes, jobs, options.direct};
  CacheTimeouts timeouts{invalidation, nodes, io_modes};
  ClaimInvalidation claim_invalidation{nodes, invalidation};
  PendingUnlinks pending_unlinks{name_invalidation()};
  Publishing publishing;
  std::unique_ptr<RemoteEntries> remote;  // null without a remote tier; made by start()
  std::unique_ptr<MetricsListener> metrics;  // null if Prometheus is not served; made by start()
  SingleFlight single_flight{entries, publishing.publisher(), trust, nodes, counters};
  SharedFiles shared_files{store, nodes, base_locks.files};
  JobBatons batons{entries, nodes, jobs};
  StoreKeeper keeper;
  // For control requests and the ends of idle jobs. Publishing has a separate queue, because a job's end waits for the
  // job's publishing.
  FairQueue tasks{{.threads = 32, .running = 4}};
  TaskQueue upkeep{2};  // for work that users' requests cause but do not wait for
  LayerMeter layer_meter{jobs, nodes, open_files, upkeep, [this](NodeId node) {
                           invalidation.notifier().invalidate_attributes({node});
                         }};
  NodePruner node_pruner{{jobs, nodes, open_files, limits, invalidation, upkeep}};
  EndedJobs ended_jobs{loop, {jobs, nodes, limits, invalidation, upkeep}};
  Ticker ticker{prompt_loop};

 private:
  LockSystem lock_system();
  void note_published(Job& job, const PublishReport& report) const;
  void note_ending(Job& job, Outcome outcome) const;
  PendingUnlinks::Invalidate name_invalidation();
  PendingReplies end_waits() REQUIRES(closing_mutex_);
  void allow_waits() REQUIRES(closing_mutex_);
  EventLoop::Clock::time_point reopen_if_due() EXCLUDES(closing_mutex_);
  std::chrono::milliseconds idle_interval() const;
  EventLoop::Clock::time_point tend();

  const LayerQuota quota_{limits, layer_space, [this] { request_measuring(); }};
  int device_ = -1;  // the session's descriptor
  std::atomic<bool> uses_io_uring_{false};
  std::vector<int> lowers_;  // the base's directory, or the lower directories of a plain overlay
  bool is_base_local_;   // no other machine changes the base, or the lower directories
  bool is_layer_local_;  // no other machine changes the layers
  std::unique_ptr<IdleJobs> idle_jobs_;
  EventLoop::Clock::time_point next_tending_{};
  std::chrono::milliseconds search_interval_{};
  Mutex closing_mutex_{LockRank::kClosing};
  bool is_closed_for_good_ GUARDED_BY(closing_mutex_) = false;
  EventLoop::Clock::time_point reopen_at_ GUARDED_BY(closing_mutex_) = EventLoop::kNever;
  std::atomic<bool> is_closing_{false};
  EventLoop::Task reopening_{loop, "allowing waits again",
                             [this](const auto&) { return reopen_if_due(); }};
  EventLoop::Task pruning_{loop, "pruning nodes",
                           [this](const auto&) { return node_pruner.tend(); }};
  EventLoop::Task resuming_{loop, "resuming publishing",
                            [this](const auto&) { return publishing.resume_if_room(); }};
  EventLoop::Task measuring_{loop, "measuring layers",
                             [this](const auto&) { return layer_meter.tend(); }};
  EventLoop::Task tending_{loop, "tending jobs and the store", [this](const auto&) { return tend(); }};
};

}  // namespace cacheshim
