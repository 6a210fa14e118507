// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fuse/jobs/job.h"
#include "store/base/store.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The jobs of this mount, by id: those that are active, and those that have ended (forget_ended()). Thread-safe.
class JobTable {
 public:
  // The number of ended jobs of one user that the table keeps.
  static constexpr std::size_t kMostEnded = 1024;

  // All must outlive the table. `jobs_dir` is the node of .jobs.
  JobTable(const Store& store, const EntryMap& entries, Counters& counters, NodeTable& nodes,
           NodeIndex jobs_dir, PublishPolicy policy, const OwnerMode& owners,
           const DirectAccess* direct = nullptr);

  std::shared_ptr<Job> find(const std::string& id) const;  // null if there is none
  // Returns the job; makes it if there is none. If the job is not active, begins it and charges `account`. Errors:
  // those of JobPayment::take().
  Result<std::shared_ptr<Job>> ensure_active(const std::string& id, const JobClaim& claim,
                                             UserAccount& account, bool shared_uids = false);
  std::vector<std::shared_ptr<Job>> all() const;
  std::size_t active_count() const;
  // states() returns an element for each job, sorted by id. The elements are a consistent snapshot.
  struct State {
    std::shared_ptr<Job> job;
    bool is_active;
    Outcome outcome;
  };
  std::vector<State> states() const;
  // Forgets the ended jobs of each user beyond kMostEnded, the least recently used ones first. Keeps a job whose nodes
  // the kernel knows, or to which another object has a shared_ptr. Returns the jobs beyond kMostEnded that it keeps.
  // The caller must then make the kernel forget the nodes of these jobs. If the next call still keeps one of them, that
  // call charges the user for the job as for an active one.
  std::vector<std::shared_ptr<Job>> forget_ended(UserLimits& limits);
  // The number of direct opens, which bypass the mount, by all jobs since the table was made.
  std::uint64_t direct_opens() const;
  PublishPolicy policy() const { return policy_; }
  // For a mount where only some users may publish: the daemon then checks the writers of each job's layer. Call before
  // there are jobs.
  void restrict_publishing() { is_restricted_ = true; }
  // `access`, `quota` and `invalidator` must outlive the table. Call before there are jobs.
  void set_lock_access(const LockAccess& access) { lock_access_ = &access; }
  void set_quota(const LayerQuota& quota) { quota_ = &quota; }
  void set_invalidator(Invalidator& invalidator) { invalidator_ = &invalidator; }
  // `on_many` is called when forget_ended() may have something to do. It is called with locks held and must not block.
  void set_on_many(std::function<void()> on_many) { on_many_ = std::move(on_many); }

  // Makes the only job of a plain overlay. Its view is the whole mount. It is never active, so it
  // does not end.
  Job& make_plain(std::shared_ptr<const LowerStack> lowers);

  // Takes over the layers that dead daemons of this compute node left, because the layers' jobs may still be running.
  // Like any other job, each of these jobs ends when it has been unused for job_idle.
  void adopt_orphans();

  // The lower directories below every job's layer: the store's base.
  const std::shared_ptr<const LowerStack>& lowers() const { return lowers_; }

 private:
  using Place = std::map<std::string, std::shared_ptr<Job>>::iterator;

  Job& get_or_make(const std::string& id) REQUIRES(mutex_);
  std::map<uid_t, std::vector<Place>> surplus() REQUIRES(mutex_);

  const Store& store_;
  const EntryMap& entries_;
  Counters& counters_;
  NodeTable& nodes_;
  const NodeIndex jobs_dir_;
  const PublishPolicy policy_;
  const OwnerMode owners_;
  const DirectAccess* const direct_;
  bool is_restricted_ = false;
  const LockAccess* lock_access_ = nullptr;
  const LayerQuota* quota_ = nullptr;
  Invalidator* invalidator_ = nullptr;
  const std::shared_ptr<const LowerStack> lowers_;
  std::function<void()> on_many_ = [] {};
  std::atomic<std::uint64_t> changes_{0};  // the number of beginnings and ends of jobs
  mutable Mutex mutex_{LockRank::kJobTable};
  std::map<std::string, std::shared_ptr<Job>> jobs_ GUARDED_BY(mutex_);
  std::set<const Job*> left_before_ GUARDED_BY(mutex_);  // the result of the last forget_ended()
  std::uint64_t opens_of_forgotten_ GUARDED_BY(mutex_) = 0;  // direct opens by forgotten jobs
};

}  // namespace cacheshim
