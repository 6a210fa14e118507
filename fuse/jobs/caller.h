// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/job_id.h"
#include "common/result.h"
#include "fuse/jobs/cgroup_proof.h"
#include "store/profiles/publish_policy.h"
#include "store/sys/environment_reader.h"
#include "store/threads/mutex.h"

// Identifies the caller of a request from the credentials in the request and from /proc.
namespace cacheshim {

struct Caller {
  uid_t uid;
  gid_t gid;
  pid_t tid;  // the thread's id in the daemon's PID namespace; 0 for a caller outside it
};

// Whether a process belongs to the SLURM job whose id it names.
enum class SlurmProof : std::uint8_t {
  kNotNeeded,  // the id is not a number, or this machine has no SLURM cgroups
  kMissing,    // the process is not in the job's cgroup, or is outside the daemon's PID namespace, so that the
               // daemon cannot see its cgroup
  kGiven,      // the process is in the job's cgroup
};

// The job that a process claims (common/job_id.h), that is, the first of these that exists:
// 1. The job that its environment names. But SLURM's cgroup takes precedence over SLURM's variables.
// 2. The job of its cgroup.
// 3. The job that its nearest ancestor with a claim claims. An ancestor counts only if all user ids of the ancestor,
//    and of each process between it and the caller, are the caller's.
// 4. uid-<uid>.
//
// The environment is the one that the process got at its exec. The environment of a set-id program does not count,
// because the program's caller has set it. A claim of an id that belongs to another user by construction
// (is_of_another_uid()) does not count either. JobRights decides whether the process gets the job that it claims.
struct JobClaim {
  JobId job;
  JobId cycle;
  std::optional<PublishPolicy> publish;  // CACHESHIM_PUBLISH, which can only restrict the policy
  SlurmProof proof = SlurmProof::kNotNeeded;
  // Whether the caller accepts a job that another user shares. True if its request says so, or if its process names the
  // job by CACHESHIM_JOB; a variable that a scheduler sets in every process does not suffice.
  bool accepts_sharing = false;
  bool is_roots = false;  // root starts the job
  // The id that the process has named, if JobRights has replaced `job`; otherwise empty.
  JobId named = {};
};

// Returns the supplementary groups of a thread; empty if /proc does not show them.
std::vector<gid_t> groups_of(pid_t tid);

// Determines the claims of callers, and caches the claim of each thread together with the thread's start time, its uid
// and the address of its environment. A cached claim is valid if all three are unchanged: a later thread with the same
// id has another start time, and an exec, which may change the environment, changes the address. The id cannot be
// reused while the thread waits for the daemon's reply. A claim is not cached if an environment could not be read in
// time (EnvironmentReader). Thread-safe.
class CallerJobs {
 public:
  explicit CallerJobs(CgroupProof cgroups = CgroupProof::of_this_process())
      : cgroups_(std::move(cgroups)) {}

  JobClaim claim_of(const Caller& caller);
  SlurmProof proof_of(const Caller& caller, std::string_view id) const;

 private:
  struct Image {
    std::uint64_t start_time;         // in clock ticks since boot
    std::uint64_t environment_start;  // the environment's address; 0 if the daemon may not see it
    uid_t uid;                        // a thread may become another user without an exec
    friend bool operator==(const Image&, const Image&) = default;
  };
  struct Known {
    Image image;
    JobClaim claim;
  };
  struct Found {
    JobClaim claim;
    bool is_complete;  // false if an environment could not be read in time
  };
  static std::optional<Image> image_of(const Caller& caller);
  // known_claim() returns the thread's cached claim, and claim_of_main_thread() the cached claim of the process's main
  // thread. Both return nothing if no valid claim is cached.
  std::optional<JobClaim> known_claim(pid_t tid, const Image& image) const;
  std::optional<JobClaim> claim_of_main_thread(const Caller& caller, const Image& image) const;
  Found find_claim(const Caller& caller);
  void remember(pid_t tid, const Image& image, const JobClaim& claim);

  bool has_slurm() const;

  const CgroupProof cgroups_;
  EnvironmentReader environments_;
  mutable std::atomic<std::chrono::steady_clock::time_point> no_slurm_until_{};
  mutable Mutex mutex_;
  std::unordered_map<pid_t, Known> known_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
