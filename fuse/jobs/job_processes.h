// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/sys/environment_reader.h"
#include "store/sys/process.h"

// Finds living processes of jobs in /proc. A job may be alive although it sends no requests to the daemon: for example,
// its only process is a preloaded `sleep 1d` whose parent used the cache.
namespace cacheshim {

struct JobUsers {
  std::string job;
  std::vector<uid_t> uids;  // empty: no user has used the job yet, and any user's process counts
};

using LivingProcesses = std::map<std::string, Process>;  // one process per job

// Returns one living process for each of `jobs` that has any, in one pass over the directory `proc`. A process belongs
// to these jobs:
// - the job that its environment names, or the job uid-<uid>.<id> that it gets instead;
// - the SLURM job of its cgroup;
// - the jobs of its ancestors;
// - all jobs of its user, if its environment cannot be read in time.
//
// A process counts only if its real user is root or one of the job's users, so that no other user can keep a job from
// ending. The calling process (the daemon) never counts, because it may have been started within a job.
//
// Takes some 40 µs of CPU per process of root and of the jobs' users.
LivingProcesses find_living_processes(const std::vector<JobUsers>& jobs, EnvironmentReader& environments,
                                      const std::string& proc = "/proc");

// Whether the process with this id and start time still exists and is not a zombie.
bool is_living(const Process& process, const std::string& proc = "/proc");

// The processes that are known to use a job. A process stays known after an exec. Not thread-safe.
class KnownProcesses {
 public:
  // Notes the process of a thread; does nothing if /proc does not show it. Fast for a known thread, because every
  // READLINK in the mount's root calls note().
  void note(pid_t tid);
  // Returns a known process that lives, if there is any. Forgets the processes that have exited.
  std::optional<Process> find_living(const std::string& proc = "/proc");
  std::size_t count() const { return known_.size(); }  // the number of threads
  void clear() { known_.clear(); }

 private:
  void forget_exited(const std::string& proc);

  struct Known {
    pid_t process;
    // The time at which the daemon last saw the thread, in clock ticks since boot. A process that started later has
    // reused the id.
    std::uint64_t seen;
  };
  std::map<pid_t, Known> known_;  // keyed by thread id
  std::size_t most_ = 4096;       // when `known_` reaches this size, note() forgets exited processes
};

}  // namespace cacheshim
