// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/job_id.h"
#include "common/result.h"
#include "store/profiles/publish_policy.h"
#include "store/sys/mutex.h"

// Identifies the caller of a request, from the credentials that the kernel sends with it and from
// /proc.
namespace cacheshim {

struct Caller {
  uid_t uid;
  gid_t gid;
  pid_t tid;  // in the daemon's PID namespace; 0 for a caller outside it
};

// The job that a process claims, as determined by common/job_id.h: by its environment, otherwise by
// its cgroup, otherwise by its nearest ancestor with a claim, otherwise uid-<uid>. SLURM's cgroup
// takes precedence over SLURM's variables. An ancestor counts only if it and all processes between
// have no user id but the caller's. The environment is the one that the process got at its exec.
// The environment of a set-id program is ignored, because the program's caller has set it. A claim
// of the job uid-<uid> is ignored if that is another user's uid.
struct JobClaim {
  JobId job;
  JobId cycle;
  std::optional<PublishPolicy> publish;  // CACHESHIM_PUBLISH, which can only restrict the policy
};

// Returns the supplementary groups of a thread; empty if /proc does not show them.
std::vector<gid_t> groups_of(pid_t tid);

// Determines the claims of callers, and caches the claim of each thread together with the thread's
// start time, its uid and the address of its environment. A cached claim is valid if all three are
// unchanged: a later thread with the same id has another start time, and an exec, which may bring
// another environment, changes the address. The id cannot be reused while the thread waits for the
// daemon's answer. Thread-safe.
class CallerJobs {
 public:
  JobClaim claim_of(const Caller& caller);

 private:
  struct Image {
    std::uint64_t start_time;         // clock ticks since boot
    std::uint64_t environment_start;  // address; 0 if the daemon may not see it
    uid_t uid;                        // a thread may become another user without an exec
    friend bool operator==(const Image&, const Image&) = default;
  };
  struct Known {
    Image image;
    JobClaim claim;
  };
  static std::optional<Image> image_of(const Caller& caller);

  Mutex mutex_;
  std::unordered_map<pid_t, Known> known_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
