// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job.h"

#include <spdlog/spdlog.h>

#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "common/job_id.h"
#include "fuse/jobs/invalidator.h"
#include "store/base/store.h"
#include "store/overlay/layer_upkeep.h"
#include "store/sys/paths.h"

namespace cacheshim {
namespace {

JobViews::Settings view_settings(const std::string& id, const JobSettings& settings) {
  return {.owners = settings.owners, .is_plain = settings.is_plain, .owner = owner_of_id(id)};
}

}  // namespace

// Does not charge for a user's own job, uid-<uid>, because all of the user's processes that name no other job use it.
Result<JobPayment> JobPayment::take(UserAccount& account, const std::string& job) {
  constexpr std::uint64_t kDescriptors = 8;  // for the layer and the filter
  if (job == JobId::for_uid(account.uid()).view()) return JobPayment();
  CACHESHIM_TRY(one, Charge::take(&account, Limit::kJobs));
  CACHESHIM_TRY(open, Charge::take(&account, Limit::kHandles, kDescriptors));
  return JobPayment{std::move(one), std::move(open)};
}

Job::Job(std::string job_id, std::shared_ptr<const LowerStack> lowers, const EntryMap& entries,
         Counters& counters, NodeTable& nodes, const JobSettings& settings)
    : id(std::move(job_id)),
      overlay(std::move(lowers), entries, counters, this,
              {.keep_owner = settings.owners.keep, .has_store_records = !settings.is_plain}),
      life(settings.changes),
      filter(id, settings.direct),
      views(view_settings(id, settings), use, filter),
      policy(id, {.initial = settings.is_plain ? PublishPolicy::kNever : PublishPolicy::kComplete,
                  .is_restricted = settings.is_restricted}),
      publishing({.job_id = id,
                  .life = life,
                  .views = views,
                  .policy = policy,
                  .unsettled = unsettled,
                  .reads = reads,
                  .nodes = nodes,
                  .view_root = view_root,
                  .attributes_changed = [this](const std::string& path) {
                    overlay.mutex().assert_held_shared();
                    attributes_changed(node_at(path));
                    attributes_changed(node_at(parent_path(path)));
                  }}),
      layer_use(settings.quota),
      nodes_(nodes),
      settings_(settings) {}

void Job::begin(const JobClaim& claim, PublishPolicy mount_policy, bool shared_uids,
                JobPayment payment) {
  payment_ = std::move(payment);
  policy.begin(mount_policy, claim.publish);
  views.begin(shared_uids);
  views.is_shared_by_root = shared_uids && claim.is_roots;
  publishing.begin();
  (void)pack.exchange(nullptr);
  (void)filter.take_uses();
  use.runs = 0;  // a run may have begun while finish() was in progress
  use.a_run_failed = false;
  use.touch();
  share_locks();
  life.begin(std::string(claim.cycle.view()), std::time(nullptr));
}

void Job::charge_after_end(UserAccount* account) {
  payment_.job = Charge(account, Limit::kJobs);
  if (account != nullptr) payment_.job.set(1);
}

void Job::adopt(Layer taken, PublishPolicy mount_policy) {
  const LayerRecord found = taken.record();
  layer = std::move(taken);
  policy.begin(mount_policy, found.publish);
  policy.take_over(*layer);
  views.begin(found.shared_uids, found.uid);
  views.is_shared_by_root = found.shared_by_root;
  use.touch();
  share_locks();
  layer_use.adopt();
  life.begin(found.cycle, found.started);
}

// Calls JobLife::end() last, because another thread may call begin() immediately afterwards.
PendingReplies Job::finish(Outcome outcome) {
  use.runs = 0;
  pending.clear();
  views.end();
  reads.clear();
  payment_ = {};
  return life.end(outcome);
}

// Reads the cycle first, since begin() sets it last. So the record never combines a cycle with the
// policy of an earlier cycle.
LayerRecord Job::wanted_record() const {
  LayerRecord wanted;
  wanted.job = id;
  wanted.node = node_name();
  wanted.cycle = life.cycle();
  wanted.started = life.started();
  wanted.uid = views.owner();
  wanted.shared_uids = views.shares_uids();
  wanted.shared_by_root = views.is_shared_by_root;
  policy.fill(wanted);
  return wanted;
}

Status Job::ensure_layer(int layers) {
  if (layer) return {};
  if (settings_.is_plain) return overlay.has_layer() ? Status() : Errno(EROFS);
  if (layers < 0) return Errno(EROFS);  // a read-only store has no layers
  CACHESHIM_TRY(taken, Layer::take(layers, wanted_record()));
  layer = std::move(taken);
  policy.take_over(*layer);
  share_locks();
  return open_layer();
}

Status Job::open_layer() {
  CACHESHIM_TRY(upper, layer->open_upper());
  CACHESHIM_TRY(work, layer->open_work());
  overlay.set_layer(std::move(upper), std::move(work));
  return load_layer(overlay);
}

Status Job::grow(std::uint64_t bytes, std::uint64_t names) {
  if (settings_.quota == nullptr) return {};
  return layer_use.grow(views.owner().value_or(0), {bytes, names});
}

Status Job::use_plain_layer(UniqueFd upper, UniqueFd work) {
  overlay.set_layer(std::move(upper), std::move(work));
  return load_layer(overlay);
}

void Job::forget_layer() {
  publishing.forget_layer();
  policy.forget_layer();
  layer_use.clear();
  share_locks();
}

// A job that may not publish does not use the base's lock files, so it neither blocks other jobs nor waits for them.
void Job::share_locks() {
  const MutexLock lock(share_mutex_);  // serializes callers: the last one applies the latest policy
  overlay.locks().directory.share(policy.may_publish() ? settings_.lock_base : -1,
                                  settings_.lock_access, settings_.lock_staging);
}

Status Job::refuse_publishing(const std::string& why) {
  // The lock waits for publishing in progress, which has already checked whether the layer may be published.
  const WriterLock lock(overlay.mutex());
  const Status recorded = policy.refuse(why, layer ? &*layer : nullptr);
  share_locks();
  return recorded;
}

void Job::record_owner() {
  {
    const ReaderLock lock(overlay.mutex());
    if (!layer || layer->record().uid == views.owner()) return;
  }
  const WriterLock lock(overlay.mutex());
  const auto owner = views.owner();
  if (!layer || layer->record().uid == owner) return;
  LayerRecord record = layer->record();
  record.uid = owner;
  if (const Status saved = layer->save(record); !saved) {
    spdlog::error(
        "cannot record who owns the layer of job '{}': {}; if the daemon dies, the next user of the job "
        "id gets it",
        id, std::strerror(saved.error().code()));
  }
}

void Job::copied_up(const std::string& path, const struct stat& upper) {
  overlay.mutex().assert_held_shared();
  const NodeIndex node = node_at(path);
  if (node != 0 && S_ISREG(upper.st_mode)) nodes_.objects().moved(node, upper, true);
  attributes_changed(node);
}

// If only the ctime has changed, the attributes that the kernel has cached are still correct, because the view keeps
// showing the previous ctime (keep_ctime()).
void Job::copied_into(const std::string& path, const struct stat& before,
                      const struct stat& after) {
  overlay.mutex().assert_held_shared();
  const NodeIndex node = node_at(path);
  if (node != 0) nodes_.objects().keep_ctime(node, before.st_ctim, after.st_ctim);
  const bool has_changed = before.st_size != after.st_size || before.st_blocks != after.st_blocks ||
                           before.st_nlink != after.st_nlink;
  if (has_changed) attributes_changed(node);
}

NodeIndex Job::node_at(std::string_view path) const {
  return nodes_.names().find_path(view_root, path);
}

void Job::attributes_changed(NodeIndex node) const {
  if (node != 0 && settings_.invalidator != nullptr)
    settings_.invalidator->attributes_changed(*this, node);
}

}  // namespace cacheshim
