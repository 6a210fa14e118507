// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/idle_jobs.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "common/job_id.h"

namespace cacheshim {
namespace {

using namespace std::chrono_literals;

constexpr int kRestFactor = 19;  // a pass of 1 s is followed by 19 s without one

}  // namespace

IdleJobs::IdleJobs(JobTable& jobs, std::chrono::seconds job_idle, std::function<void(Job&)> end,
                   std::string proc)
    : jobs_(jobs), job_idle_(job_idle), end_(std::move(end)), proc_(std::move(proc)) {}

bool IdleJobs::may_end(const Job& job) const {
  return job.life.is_active() && !is_own_job(job.id) && job.use.open_files == 0 &&
         job.use.runs == 0 && Clock::now() - job.use.last_use() > job_idle_;
}

void IdleJobs::tick() {
  if (!searched_.empty()) finish_pass();
  keep_living();
  std::vector<std::shared_ptr<Job>> idle;
  for (const auto& job : jobs_.all()) {
    if (may_end(*job)) idle.push_back(job);
  }
  if (idle.empty() || !searched_.empty() || Clock::now() < next_pass_) return;
  begin_pass(idle);
}

// Marks the jobs of living processes as used. So a job's idle time begins when its last process exits, not at its last
// request.
void IdleJobs::keep_living() {
  std::erase_if(living_, [this](const auto& living) {
    auto& [job, process] = living;
    if (!job->life.is_active() || !is_living(process, proc_)) return true;
    job->use.touch();
    return false;
  });
}

// The pass runs on a detached thread, so that it delays neither the event loop nor the daemon's exit. The thread has
// copies of all its input.
void IdleJobs::begin_pass(const std::vector<std::shared_ptr<Job>>& jobs) {
  std::vector<JobUsers> users;
  for (const auto& job : jobs) {
    if (const auto process = job->views.known_process(proc_)) {
      living_.insert_or_assign(job, *process);
      job->use.touch();
    } else {
      users.push_back({job->id, job->views.owners()});
      searched_.push_back(job);
    }
  }
  if (searched_.empty()) return;
  std::packaged_task<std::optional<Pass>()> pass(
      [users = std::move(users), environments = environments_,
       proc = proc_]() -> std::optional<Pass> {
        const auto began = Clock::now();
        try {
          LivingProcesses found = find_living_processes(users, *environments, proc);
          return Pass{std::move(found), Clock::now() - began};
        } catch (const std::exception&) {
          return std::nullopt;
        }
      });
  pass_ = pass.get_future();
  try {
    std::thread(std::move(pass)).detach();
  } catch (const std::system_error&) {
    searched_.clear();  // the system is out of threads: the next tick tries again
  }
}

void IdleJobs::finish_pass() {
  if (searched_.empty()) return;
  if (pass_.wait_for(0s) != std::future_status::ready) return;
  const auto searched = std::exchange(searched_, {});
  const std::optional<Pass> pass = pass_.get();
  if (!pass) return;
  next_pass_ = Clock::now() + pass->took * kRestFactor;
  for (const auto& job : searched) {
    const auto living = pass->found.find(job->id);
    if (living != pass->found.end()) {
      living_.insert_or_assign(job, living->second);
      job->use.touch();
    } else if (may_end(*job)) {
      end_(*job);
    }
  }
}

}  // namespace cacheshim
