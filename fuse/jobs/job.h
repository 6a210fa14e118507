// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fuse/jobs/caller.h"
#include "fuse/jobs/entry_reads.h"
#include "fuse/jobs/job_life.h"
#include "fuse/jobs/job_pack.h"
#include "fuse/jobs/job_policy.h"
#include "fuse/jobs/job_publishing.h"
#include "fuse/jobs/job_use.h"
#include "fuse/jobs/job_views.h"
#include "fuse/jobs/owner_mode.h"
#include "fuse/jobs/pending_entries.h"
#include "fuse/jobs/unsettled_writes.h"
#include "fuse/jobs/view_filter.h"
#include "fuse/limits/layer_use.h"
#include "fuse/limits/user_limits.h"
#include "fuse/nodes/node_table.h"
#include "fuse/requests/pending_replies.h"
#include "store/layer/layer.h"
#include "store/overlay/overlay.h"
#include "store/profiles/entry_map.h"
#include "store/threads/mutex.h"

namespace cacheshim {

class Invalidator;

// The settings and services of a mount that its jobs use.
struct JobSettings {
  OwnerMode owners;
  // Whether this is the only job of a plain overlay: its view has no owner, and the view's root is an ordinary
  // directory.
  bool is_plain = false;
  // A descriptor of the base's directory, through which a job that may publish uses the base's lock files; -1 if the
  // base is not writable.
  int lock_base = -1;
  // The store's staging directory, for LockDirectory::share(); -1: none.
  int lock_staging = -1;
  const LockAccess* lock_access = nullptr;  // which users may lock the base's lock files outside the mount
  // The data that direct answers use; null if the mount gives no direct answers.
  const DirectAccess* direct = nullptr;
  // Counts the beginnings and ends of all jobs; null: they are not counted.
  std::atomic<std::uint64_t>* changes = nullptr;
  const LayerQuota* quota = nullptr;  // for all layers; null: the layers have no limits
  // Whether only some users may publish: the daemon then checks the writers of each layer.
  bool is_restricted = false;
  Invalidator* invalidator = nullptr;  // null: nothing is invalidated
};

// The charges to the user whose process has begun a job.
struct JobPayment {
  // Charges `account` for a job, unless the job is the user's own, uid-<uid>. Errors: EDQUOT, EMFILE.
  static Result<JobPayment> take(UserAccount& account, const std::string& job);
  Charge job;
  Charge descriptors;
};

// A job of this mount: its layer, its parts, and the functions that concern several parts. The job and each part are
// thread-safe.
//
// A job lives as long as JobTable has it or a shared_ptr to it exists. JobTable keeps a job that has nodes, so a
// request may use the job of its node until the daemon replies. An object that outlives the request, such as a task,
// needs a shared_ptr (shared_from_this()). An object that has only a plain pointer may compare it, but must not
// dereference it.
class Job final : public std::enable_shared_from_this<Job>, private OverlayObserver {
 public:
  Job(std::string job_id, std::shared_ptr<const LowerStack> lowers, const EntryMap& entries,
      Counters& counters, NodeTable& nodes, const JobSettings& settings = {});

  const std::string id;
  Overlay overlay;
  NodeIndex view_root = 0;

  JobUse use;
  JobLife life;
  // The shadow filter for the processes of the view's owner. A job with shared uids has no filter, because its views
  // show different owners.
  ViewFilter filter;
  JobViews views;
  JobPolicy policy;
  EntryReads reads;
  UnsettledWrites unsettled;
  PendingEntries pending;
  JobPublishing publishing;
  LayerUse layer_use;
  JobPack pack;
  Mutex end_mutex{LockRank::kJobEnd};  // held by the thread that ends the job

  void begin(const JobClaim& claim, PublishPolicy mount_policy, bool shared_uids,
             JobPayment payment = {});
  // Takes over a layer that an earlier daemon left; call open_layer() next.
  void adopt(Layer taken, PublishPolicy mount_policy) REQUIRES(overlay.mutex());
  // Charges `account` for this ended job as if the job were active; null: ends the charge. begin() also ends the
  // charge. Requires: no other thread calls begin() meanwhile.
  void charge_after_end(UserAccount* account);
  // Ends the job. Requires: the job has dropped its layer. Returns the replies to the requests that wait for the end.
  PendingReplies finish(Outcome outcome) EXCLUDES(overlay.mutex());

  // ---- The layer is created with the first change.
  std::optional<Layer> layer GUARDED_BY(overlay.mutex());
  // Creates the layer if the job has none. `layers`: the directory of all layers, open; -1 if the store is read-only.
  // Errors: EROFS if the store is read-only; otherwise those of Layer::take() and open_layer().
  Status ensure_layer(int layers) REQUIRES(overlay.mutex());
  Status open_layer() REQUIRES(overlay.mutex());  // makes `layer` the overlay's layer
  // Call before a request adds data or attributes to the layer. For new objects and copy-ups, Overlay makes this call.
  // Errors: ENOSPC, EDQUOT (LayerUse::grow()).
  Status grow(std::uint64_t bytes, std::uint64_t names = 0) override;
  // For a plain overlay: sets its layer, which has no record. Call at most once. Without a layer,
  // ensure_layer() returns EROFS.
  Status use_plain_layer(UniqueFd upper, UniqueFd work) REQUIRES(overlay.mutex());
  // Call when the job has dropped its layer. Forgets the refusal, and the reasons why entries stayed in the layer. The
  // caller must clear `filter`.
  void forget_layer() REQUIRES(overlay.mutex());

  // Ensures that no daemon ever publishes the layer's contents from now on. Call before the change that causes the
  // refusal. Errors: those of writing the layer's record; the caller must then not make the change.
  Status refuse_publishing(const std::string& why) EXCLUDES(overlay.mutex());
  // Ensures that the layer's record durably names its owner. Call before the first answer to the owner, with no lock
  // held. Writes nothing if there is no layer, or if the owner is already recorded. Logs a failure, but does not report
  // it.
  void record_owner() EXCLUDES(overlay.mutex());

 private:
  void copied_up(const std::string& path, const struct stat& upper) override;
  void copied_into(const std::string& path, const struct stat& before,
                   const struct stat& after) override;
  // Returns the node at `path` in the view; 0 if there is none.
  NodeIndex node_at(std::string_view path) const;
  // Makes the kernel request the attributes of the node's object again. Ignores node 0.
  void attributes_changed(NodeIndex node) const REQUIRES_SHARED(overlay.mutex());
  void shadows(const std::string& path, bool tree) override { filter.add(path, tree); }
  LayerRecord wanted_record() const;
  // Applies the policy to the layer's locks. Call after a change to the policy.
  void share_locks() EXCLUDES(share_mutex_);

  NodeTable& nodes_;
  const JobSettings settings_;
  Mutex share_mutex_;  // held by share_locks()
  JobPayment payment_;  // changed by begin(), finish() and charge_after_end(), which exclude each other
};

}  // namespace cacheshim
