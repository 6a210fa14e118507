// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fuse/jobs/job.h"
#include "fuse/jobs/job_processes.h"
#include "fuse/jobs/job_table.h"

namespace cacheshim {

// Ends jobs that have been unused for `job_idle` and have no living process. Requests alone do not show that a job is
// over: a process may sleep or compute for hours between two requests. So this class searches /proc for a job's
// processes, but only when it is about to end the job. Not thread-safe, except may_end().
//
// Cost: at most one pass over /proc at a time, on a separate thread, which uses at most a twentieth
// of one core. The class remembers one living process of each idle job that has any. Each tick()
// checks these processes. While a job's remembered process lives, no pass searches for the job.
class IdleJobs {
 public:
  using Clock = std::chrono::steady_clock;

  // `end` ends a job, or posts a task that ends it. A posted task must call may_end() first. `jobs` must outlive this
  // object.
  IdleJobs(JobTable& jobs, std::chrono::seconds job_idle, std::function<void(Job&)> end,
           std::string proc = "/proc");

  // Call regularly, and more often while is_searching(). Does not block.
  void tick();
  // Whether a pass over /proc is in progress. Call only on the thread that calls tick().
  bool is_searching() const { return !searched_.empty(); }

  // Whether the job is active, has no open files and no runs, and has not been used for `job_idle`.
  // Always false for a job uid-<uid>. Does not check for living processes. Thread-safe.
  bool may_end(const Job& job) const;

 private:
  void keep_living();
  void begin_pass(const std::vector<std::shared_ptr<Job>>& jobs);
  void finish_pass();

  JobTable& jobs_;
  const std::chrono::seconds job_idle_;
  const std::function<void(Job&)> end_;
  const std::string proc_;
  const std::shared_ptr<EnvironmentReader> environments_ = std::make_shared<EnvironmentReader>();
  // One living process of each idle job, if the daemon knows one.
  std::map<std::shared_ptr<Job>, Process> living_;
  // The jobs that the current pass over /proc searches for; empty if there is no pass.
  std::vector<std::shared_ptr<Job>> searched_;
  struct Pass {
    LivingProcesses found;
    Clock::duration took;
  };
  std::future<std::optional<Pass>> pass_;  // no value: the pass has failed, for example for lack of memory
  Clock::time_point next_pass_{};
};

}  // namespace cacheshim
