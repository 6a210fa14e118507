// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job_table.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace cacheshim {

JobTable::JobTable(const Store& store, const EntryMap& entries, Counters& counters,
                   NodeTable& nodes, NodeIndex jobs_dir, PublishPolicy policy,
                   const OwnerMode& owners, const DirectAccess* direct)
    : store_(store),
      entries_(entries),
      counters_(counters),
      nodes_(nodes),
      jobs_dir_(jobs_dir),
      policy_(policy),
      owners_(owners),
      direct_(owners.keep ? nullptr : direct),
      lowers_(std::make_shared<const LowerStack>(std::vector<int>{store.base()})) {}

std::shared_ptr<Job> JobTable::find(const std::string& id) const {
  const MutexLock lock(mutex_);
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second;
}

Job& JobTable::get_or_make(const std::string& id) {
  std::shared_ptr<Job>& job = jobs_[id];
  if (!job) {
    const int lock_base = store_.is_writable() ? store_.base() : -1;
    job = std::make_shared<Job>(id, lowers_, entries_, counters_, nodes_,
                                JobSettings{.owners = owners_,
                                            .lock_base = lock_base,
                                            .lock_staging = store_.staging(),
                                            .lock_access = lock_access_,
                                            .direct = direct_,
                                            .changes = &changes_,
                                            .quota = quota_,
                                            .is_restricted = is_restricted_,
                                            .invalidator = invalidator_});
    job->view_root = nodes_.intern_own(jobs_dir_, id, NodeKind::kObject, job.get());
    if (jobs_.size() > kMostEnded) on_many_();
  }
  return *job;
}

Job& JobTable::make_plain(std::shared_ptr<const LowerStack> lowers) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Job>& job = jobs_["overlay"];
  job = std::make_shared<Job>("overlay", std::move(lowers), entries_, counters_, nodes_,
                              JobSettings{.owners = owners_,
                                          .is_plain = true,
                                          .invalidator = invalidator_});
  job->view_root = kRootNode;
  return *job;
}

Result<std::shared_ptr<Job>> JobTable::ensure_active(const std::string& id, const JobClaim& claim,
                                                     UserAccount& account, bool shared_uids) {
  const MutexLock lock(mutex_);
  const auto known = jobs_.find(id);
  if (known != jobs_.end() && known->second->life.is_active()) return known->second;
  CACHESHIM_TRY(payment, JobPayment::take(account, id));
  Job& job = get_or_make(id);
  job.begin(claim, policy_, shared_uids, std::move(payment));
  return job.shared_from_this();
}

std::vector<std::shared_ptr<Job>> JobTable::all() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Job>> jobs;
  jobs.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) jobs.push_back(job);
  return jobs;
}

// Reads the states again if a job has ended meanwhile. The loop terminates, because no job can begin while the lock is
// held. Takes a fraction of a millisecond for ten thousand jobs.
std::vector<JobTable::State> JobTable::states() const {
  const MutexLock lock(mutex_);
  std::vector<State> states;
  states.reserve(jobs_.size());
  std::uint64_t before = 0;
  do {
    before = changes_;
    states.clear();
    for (const auto& [id, job] : jobs_) {
      states.push_back({job, job->life.is_active(), job->life.outcome()});
    }
  } while (changes_ != before);
  return states;
}

// Returns each user's ended jobs beyond kMostEnded. Ends the charges for the other ended jobs.
std::map<uid_t, std::vector<JobTable::Place>> JobTable::surplus() {
  struct Ended {
    JobUse::Clock::time_point used;  // a copy: a request may change the original at any time
    Place place;
  };
  std::map<uid_t, std::vector<Ended>> all;
  for (auto at = jobs_.begin(); at != jobs_.end(); ++at) {
    const Job& job = *at->second;
    if (!job.life.is_active())
      all[job.views.owner().value_or(0)].push_back({job.use.last_use(), at});
  }
  std::map<uid_t, std::vector<Place>> surplus;
  for (auto& [user, ended] : all) {
    const std::size_t excess = ended.size() - std::min(ended.size(), kMostEnded);
    std::ranges::sort(ended, {}, &Ended::used);
    for (std::size_t i = 0; i < ended.size(); ++i) {
      if (i < excess) {
        surplus[user].push_back(ended[i].place);
      } else {
        ended[i].place->second->charge_after_end(nullptr);
      }
    }
  }
  return surplus;
}

// While the mutex is held, no thread can get a shared_ptr to a job that only the table has: find() waits for the mutex,
// and a request that does not call find() reaches a job only through one of the job's nodes.
std::vector<std::shared_ptr<Job>> JobTable::forget_ended(UserLimits& limits) {
  std::vector<std::shared_ptr<Job>> forgotten;  // destroyed after the mutex is released
  std::vector<std::shared_ptr<Job>> left;
  std::set<const Job*> left_now;
  const MutexLock lock(mutex_);
  for (const auto& [user, places] : surplus()) {
    for (const Place place : places) {
      const std::shared_ptr<Job>& job = place->second;
      if (job.use_count() == 1 && nodes_.forget_job(*job, job->view_root)) {
        opens_of_forgotten_ += job->filter.counts().opens;
        forgotten.push_back(job);
        jobs_.erase(place);
      } else {
        if (left_before_.contains(job.get())) job->charge_after_end(&limits.account(user));
        left_now.insert(job.get());
        left.push_back(job);
      }
    }
  }
  left_before_ = std::move(left_now);
  return left;
}

std::uint64_t JobTable::direct_opens() const {
  const MutexLock lock(mutex_);
  std::uint64_t opens = opens_of_forgotten_;
  for (const auto& [id, job] : jobs_) opens += job->filter.counts().opens;
  return opens;
}

std::size_t JobTable::active_count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(all(), [](const auto& job) { return job->life.is_active(); }));
}

void JobTable::adopt_orphans() {
  const MutexLock lock(mutex_);
  for (Layer& orphan : take_orphans(store_.layers(), node_name())) {
    const LayerRecord& found = orphan.record();
    if (!is_job_id(found.job)) continue;
    // The id belongs to a user other than the layer's owner. StoreKeeper::tend() ends this layer, and later removes it.
    if (found.uid && is_of_another_uid(found.job, *found.uid)) continue;
    Job& job = get_or_make(orphan.record().job);
    const WriterLock layer_lock(job.overlay.mutex());
    if (job.layer) continue;  // the job already has a layer of another cycle
    job.adopt(std::move(orphan), policy_);
    if (const Status opened = job.open_layer(); !opened) {
      spdlog::error("cannot take up the layer of job '{}': {}; it starts with an empty one", job.id,
                    std::strerror(opened.error().code()));
    }
  }
}

}  // namespace cacheshim
