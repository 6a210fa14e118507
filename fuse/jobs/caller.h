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

// Who is calling: from the credentials that the kernel hands over with a request, and /proc.
namespace cacheshim {

struct Caller {
  uid_t uid;
  gid_t gid;
  pid_t tid;  // in the daemon's pid namespace; 0 for a caller outside of it
};

// The job that a process claims, by the one rule (common/job_id.h): its environment, else its cgroup, else
// its parent's, else uid-<uid>. The environment is that of its exec. That of a set-id program does not count,
// since its caller has made it; nor does the uid-<uid> of another user.
struct JobClaim {
  JobId job;
  JobId cycle;
  std::optional<PublishPolicy> publish;  // CACHESHIM_PUBLISH, which can only lower the policy
};

// Supplementary groups of a thread; empty where /proc does not tell.
std::vector<gid_t> groups_of(pid_t tid);

// Thread-safe. A thread's claim is kept by its id, start time and the address of its environment:
// while it waits for our answer its id cannot be used again, a later thread of the same id has
// another start time, and an exec, which may bring another environment, moves the address.
class CallerJobs {
 public:
  JobClaim claim_of(const Caller& caller);

 private:
  struct Image {
    std::uint64_t start_time;         // clock ticks since boot
    std::uint64_t environment_start;  // address; 0 where the daemon may not see it
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
