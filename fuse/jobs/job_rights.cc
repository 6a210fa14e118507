// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job_rights.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <optional>

namespace cacheshim {

namespace {

bool is_user_of(const Job& job, uid_t uid) {
  return uid == 0 ? job.views.owner() == 0 : job.views.may_change(uid);
}

bool is_open_to(const Job& job, uid_t uid, const JobClaim& claim) {
  const auto owner = job.views.owner();
  if (is_user_of(job, uid) || !owner) return true;
  return job.views.shares_uids() && (job.views.is_shared_by_root || claim.accepts_sharing ||
                                     claim.proof == SlurmProof::kGiven);
}

// Whether the user is already in the job, or the job is shared. A shared job needs no further proof, because the user
// who shared it has given the proof, or is root.
bool needs_no_proof(const Job* job, uid_t uid) {
  return job != nullptr && (is_user_of(*job, uid) || job->views.shares_uids());
}

}  // namespace

// Replaces the claim's job if the user may not use it.
void JobRights::settle(uid_t uid, JobClaim& claim) const {
  if (owner_of_id(claim.job.view())) return;
  const auto job = jobs_.find(std::string(claim.job.view()));
  const bool is_proved = claim.proof != SlurmProof::kMissing || needs_no_proof(job.get(), uid);
  if (is_proved && (job == nullptr || is_open_to(*job, uid, claim))) return;
  claim.named = claim.job;
  claim.job = JobId::for_uid(uid, claim.named.view());
}

JobClaim JobRights::claim_of(const Caller& caller) const {
  JobClaim claim = callers_.claim_of(caller);
  if (caller.uid != 0) {
    settle(caller.uid, claim);
    return claim;
  }
  const auto job = jobs_.find(std::string(claim.job.view()));
  if (job != nullptr && !is_open_to(*job, 0, claim)) {
    claim.named = claim.job;
    claim.job = JobId::for_uid(0);
    claim.cycle = JobId::from_text("0");
  }
  return claim;
}

JobClaim JobRights::claim_of(const Caller& caller, std::string_view id, bool shares) const {
  JobClaim claim{JobId::from_text(id), JobId::from_text("0"), std::nullopt};
  claim.is_roots = caller.uid == 0;
  claim.accepts_sharing = shares;
  if (claim.is_roots) return claim;
  claim.proof = callers_.proof_of(caller, id);
  settle(caller.uid, claim);
  return claim;
}

JobClaim JobRights::claim_for(uid_t uid, std::string_view id) const {
  JobClaim claim{JobId::from_text(id), JobId::from_text("0"), std::nullopt};
  if (uid != 0) settle(uid, claim);
  return claim;
}

bool JobRights::leads_elsewhere(const Caller& caller, const std::string& id) const {
  return caller.uid != 0 && claim_of(caller).named.view() == id;
}

std::string JobRights::reason(const JobClaim& claim) const {
  if (claim.named.empty()) return "";
  const std::string id(claim.named.view());
  const auto job = jobs_.find(id);
  const auto owner = job != nullptr ? job->views.owner() : std::nullopt;
  if (owner) return fmt::format("job '{}' belongs to uid {}", id, *owner);
  return fmt::format("no cgroup of SLURM proves that this process belongs to job '{}'", id);
}

Result<std::shared_ptr<Job>> JobRights::begin_for(uid_t uid, JobClaim& claim, UserAccount& account,
                                  bool shared_uids) {
  CACHESHIM_TRY(job, ensure_active(claim, account, shared_uids));
  if (job->views.reserve(uid)) return job;
  claim.named = claim.job;
  claim.job = JobId::for_uid(uid, claim.named.view());
  return ensure_active(claim, account, shared_uids);
}

Result<std::shared_ptr<Job>> JobRights::ensure_active(const JobClaim& claim, UserAccount& account,
                                      bool shared_uids) {
  const std::string id(claim.job.view());
  const auto job = claim.named.empty() ? nullptr : jobs_.find(id);
  const bool begins_instead = !claim.named.empty() && (job == nullptr || !job->life.is_active());
  if (begins_instead) {
    spdlog::warn("{}; a process of another user that names it gets job '{}' instead",
                 reason(claim), id);
  }
  return jobs_.ensure_active(id, claim, account, shared_uids);
}

}  // namespace cacheshim
