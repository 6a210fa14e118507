// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "fuse/jobs/caller.h"
#include "fuse/jobs/job_table.h"

namespace cacheshim {

// Decides which job a process gets when it names a job's id, in its environment or in a request. Any process can name
// any id, so an id alone gives no right to a job:
//
// - An id that belongs to a user by construction (owner_of_id()) is that user's alone.
// - A job belongs to the user whom root has named at its start, or else to the first user other than
//   root who uses it. If the job is not shared, every other user gets a separate job instead,
//   uid-<uid>.<id>. So if a stranger uses an id first, the rightful user loses only the name.
// - A job that a user shares (--shared-uids) admits another user only in three cases: the other user's process names
//   the job by CACHESHIM_JOB, the other user's request shares the job too, or SLURM's cgroup proves that the process
//   belongs to the job. A scheduler's variable does not suffice, because a process that has it did not choose to work
//   in a stranger's layer. A job that root shares admits every user who names it.
// - Where SLURM's cgroups exist, a number is the id of a SLURM job. A user who is not in this job yet gets it only if
//   the job is shared, if a cgroup proves that the process belongs to the job, or if root names the user (claim_for()).
//   Otherwise the user gets uid-<uid>.<id>.
// - Root gets root's own job, uid-0, in place of another user's, because file modes do not keep root
//   out of the other user's view.
//
// Thread-safe.
class JobRights {
 public:
  // Both must outlive this object.
  JobRights(JobTable& jobs, CallerJobs& callers) : jobs_(jobs), callers_(callers) {}

  // Returns the caller's claim, with the id of the job that the caller gets.
  JobClaim claim_of(const Caller& caller) const;
  // As above, for a request that names `id`. Root gets the named job itself.
  // `shares`: the caller accepts a job that another user shares.
  JobClaim claim_of(const Caller& caller, std::string_view id, bool shares = false) const;
  // As above, for a user whom root names. Needs no proof by a cgroup.
  JobClaim claim_for(uid_t uid, std::string_view id) const;
  // Whether the caller's process names the job `id`, but the caller gets another job. False for root.
  bool leads_elsewhere(const Caller& caller, const std::string& id) const;

  // Begins the claim's job if it is not active, and charges `account` for it. If the user gets this
  // job instead of the named one, logs the reason. Errors: those of JobTable::ensure_active().
  Result<std::shared_ptr<Job>> ensure_active(const JobClaim& claim, UserAccount& account, bool shared_uids = false);
  // As above, and makes the user the job's owner before the user's first access. If another user has just become the
  // owner, changes the claim to the user's separate job uid-<uid>.<id>, and begins that job.
  Result<std::shared_ptr<Job>> begin_for(uid_t uid, JobClaim& claim, UserAccount& account, bool shared_uids);
  // Returns the reason why the caller gets a job other than the one that it has named, for messages;
  // "" if it gets the named job.
  std::string reason(const JobClaim& claim) const;

 private:
  void settle(uid_t uid, JobClaim& claim) const;

  JobTable& jobs_;
  CallerJobs& callers_;
};

}  // namespace cacheshim
