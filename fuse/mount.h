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
#include "fuse/jobs/job_table.h"
#include "fuse/jobs/publish_trust.h"
#include "fuse/nodes/handle.h"
#include "fuse/nodes/io_modes.h"
#include "fuse/nodes/node_table.h"
#include "fuse/nodes/open_files.h"
#include "fuse/requests/pending_replies.h"
#include "fuse/services/eviction/store_keeper.h"
#include "fuse/services/freshness/cache_timeouts.h"
#include "fuse/services/freshness/claim_news.h"
#include "fuse/services/freshness/invalidation.h"
#include "fuse/services/freshness/pending_unlinks.h"
#include "fuse/services/locks/job_batons.h"
#include "fuse/services/locks/lock_removals.h"
#include "fuse/services/locks/lock_table.h"
#include "fuse/services/locks/named_locks.h"
#include "fuse/services/publishing/publishing.h"
#include "fuse/services/shared_files/shared_files.h"
#include "fuse/services/single_flight/single_flight.h"
#include "store/base/store.h"
#include "store/sys/mutex.h"
#include "store/sys/task_queue.h"

namespace cacheshim {

struct MountOptions {
  std::string shown_path;  // where users see the mount
  std::string layers_dir;  // for messages
  std::string store_dir;
  std::string run_dir;
  std::string routes;  // for processes that do not see run_dir
  PublishPolicy publish;
  WatchMode watch;
  std::chrono::seconds job_idle;
  std::chrono::seconds layer_keep;
  std::chrono::seconds flight_timeout;  // 0: no single flight
  OwnerRule owners;
  std::string cycle;  // the mount's, for the record of its closing
  EvictionLimits gc;
  std::chrono::seconds gc_interval;
  const DirectAccess* direct = nullptr;  // outlives the mount
  std::optional<PublishAllow> allow;
  bool verify_on_open;
};

// What the kernel and the daemon have agreed on in FUSE_INIT.
struct Protocol {
  unsigned minor = 0;
  bool can_pass_through = false;  // the kernel can read and write files by itself
  bool uses_io_uring = false;     // requests come over io_uring
};

// The parts of a mount: its state and its services, in the order in which they need each other, and what starts and
// ends them. The operations of vfs/ and the requests of control/ work on them. Each part is thread-safe by itself.
class Mount {
 public:
  // `the_store` and `profiles` must outlive it.
  Mount(const Store& the_store, const std::vector<Profile>& profiles, MountOptions mount_options);
  ~Mount();
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  // Makes of the whole mount one view, that of a plain overlay: no directories of our own, no jobs, no publishing.
  // `lowers`, the topmost first, must stay open; read-only if the others are empty. Call it first, or never.
  Status show_plain(const std::vector<int>& lowers, UniqueFd upper, UniqueFd work);
  // From now on notices can be sent, and jobs end by themselves. `device`: the session's descriptor. `reap` removes a
  // baton whose maker has died.
  void start(int device, std::function<void(const Baton&)> reap);
  // FUSE_INIT has been answered.
  void connected(const Protocol& agreed);
  // The mount is about to be taken away for good: records that, refuses those who wait for a lock with ENOLCK, tells
  // those who wait for a job's end what is known, and lets nobody wait from then on. Returns when they have their
  // answers, or do not fetch them.
  void close_waits() EXCLUDES(closing_mutex_);
  // The same, but takes it back after `time` if the mount is still there then, as reopen_waits() does.
  void close_waits_for(std::chrono::seconds time) EXCLUDES(closing_mutex_);
  // The mount stays after all. Does nothing once close_waits() has been called.
  void reopen_waits() EXCLUDES(closing_mutex_);
  bool is_closing() const { return is_closing_; }
  // Finishes what is under way, and invalidates it in the kernel. Call while requests are answered still: they may wait
  // for it, and the kernel for their answers. What they begin from then on is not done.
  void finish_tasks();
  // Call when there are no more requests. Active jobs stay on record for the next daemon.
  void stop();

  std::uint64_t direct_opens() const;  // that processes served themselves, of all jobs
  bool uses_io_uring() const { return uses_io_uring_; }
  bool is_base_local() const { return is_base_local_; }

  const Store& store;
  const MountOptions options;
  const EntryMap entries;
  const std::time_t started;
  Counters counters;
  NodeTable nodes;
  HandleTable handles;
  OpenFiles open_files;
  IoModes io_modes;
  std::atomic<int> releases{0};  // RELEASE requests whose locks are not gone yet
  LockTable locks{counters, lock_system()};
  LockFiles base_locks{entries};
  LockRemovals lock_removals{locks, base_locks};
  NamedLocks named_locks{locks, base_locks};
  CallerJobs callers;
  const LockAccess lock_access;
  const PublishTrust trust;
  const NodeIndex jobs_dir;
  JobTable jobs;
  Invalidation invalidation{nodes, jobs, options.direct};
  CacheTimeouts timeouts{invalidation, nodes, io_modes};
  ClaimNews claim_news{nodes, invalidation};
  PendingUnlinks pending_unlinks{[this](auto directory, const std::string& name) {
    invalidation.notifier().tell_name_and_wait(directory, name);
  }};
  Publishing publishing;
  SingleFlight single_flight{entries, publishing.publisher(), trust, nodes, counters};
  SharedFiles shared_files{store, nodes, base_locks};
  JobBatons batons{entries, nodes, jobs};
  StoreKeeper keeper;
  // For what takes long and nobody's request waits for. Publishing has its own, so that what answers a request never
  // queues behind this.
  TaskQueue tasks{2};
  std::unique_ptr<Ticker> ticker;

 private:
  LockSystem lock_system();
  PendingReplies refuse_waits() REQUIRES(closing_mutex_);

  int device_ = -1;  // the session's
  std::atomic<bool> uses_io_uring_{false};
  std::vector<int> lowers_;  // the base: one directory, or those of a plain overlay
  bool is_base_local_;
  std::unique_ptr<IdleJobs> idle_jobs_;
  Mutex closing_mutex_{LockRank::kClosing};
  bool is_closed_for_good_ GUARDED_BY(closing_mutex_) = false;
  std::atomic<bool> is_closing_{false};
};

}  // namespace cacheshim
