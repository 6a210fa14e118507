// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job_processes.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "common/job_id.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMostGenerations = 64;

constexpr std::size_t kLongestUserPart = 15;  // "uid-4294967294."

using JobIds = std::set<std::string>;

// Returns the <id> of a job uid-<uid>.<id>: the id that the job's processes name. Returns "" for
// other jobs.
std::string_view named_id(std::string_view id) {
  if (!owner_of_id(id) || is_own_job(id)) return {};
  return id.substr(id.find('.') + 1);
}

class ProcessPass {
 public:
  ProcessPass(const std::vector<JobUsers>& jobs, EnvironmentReader& environments,
              const std::string& proc)
      : environments_(environments), proc_(proc), own_(::getpid()) {
    for (const JobUsers& users : jobs) {
      wanted_.emplace(users.job, &users);
      if (const std::string_view named = named_id(users.job); !named.empty()) {
        separate_jobs_.emplace(named, users.job);
      }
    }
  }

  LivingProcesses run() {
    std::error_code failed;
    std::filesystem::directory_iterator at(proc_, failed);
    for (; !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
      const std::string name = at->path().filename();
      pid_t pid = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (error == std::errc() && end == name.data() + name.size()) visit(pid);
      if (found_.size() == wanted_.size()) break;
    }
    return std::move(found_);
  }

 private:
  void visit(pid_t pid) {
    const auto uid = real_uid_of(pid, proc_);
    if (!uid || !may_count(*uid)) return;
    const auto stat = stat_of(pid, proc_);
    if (!stat || is_dead(*stat)) return;
    for (const std::string& id : jobs_of(pid)) {
      if (counts(*wanted_.at(id), *uid)) found_.try_emplace(id, Process{pid, stat->start_time});
    }
  }

  static bool counts(const JobUsers& users, uid_t uid) {
    const auto& uids = users.uids;
    return uid == 0 || uids.empty() || std::find(uids.begin(), uids.end(), uid) != uids.end();
  }

  bool may_count(uid_t uid) const {
    return std::any_of(wanted_.begin(), wanted_.end(), [&](const auto& wanted) {
      return !found_.contains(wanted.first) && counts(*wanted.second, uid);
    });
  }

  // Returns the jobs of `wanted_` that the process or an ancestor names. Reads the environment of each process once.
  JobIds jobs_of(pid_t pid) {
    std::vector<pid_t> line;
    while (pid > 1 && line.size() < kMostGenerations && !known_.contains(pid)) {
      line.push_back(pid);
      const auto stat = stat_of(pid, proc_);
      pid = stat ? stat->parent : 0;
    }
    const auto above = known_.find(pid);
    JobIds ids = above == known_.end() ? JobIds() : above->second;
    for (auto one = line.rbegin(); one != line.rend(); ++one) {
      if (*one == own_) {
        ids.clear();
      } else {
        add_own_jobs(*one, ids);
      }
      known_.insert_or_assign(*one, ids);
    }
    return ids;
  }

  void add_own_jobs(pid_t pid, JobIds& ids) const {
    const auto add = [&](const JobId& id) {
      const std::string text(id.view());
      if (wanted_.contains(text)) ids.insert(text);
      for (auto [at, end] = separate_jobs_.equal_range(text); at != end; ++at)
        ids.insert(at->second);
      if (text.size() + kLongestUserPart <= kMaxJobId) return;
      for (const auto& [named, separate_job] : separate_jobs_) {  // the job's id may be truncated
        if (text.starts_with(named)) ids.insert(separate_job);
      }
    };
    // A file that cannot be read adds no job: the process has exited, or the daemon may not read the file.
    const uid_t uid = real_uid_of(pid, proc_).value_or(0);
    const auto environment = environments_.read(pid, uid, proc_);
    if (environment) add(job_from_environment(EnvironmentBlock(*environment)));
    if (environment.failed_with(ETIMEDOUT)) add_jobs_of(uid, ids);
    const auto cgroup = read_proc(pid, "cgroup", proc_);
    if (cgroup) add(slurm_job_from_cgroup(*cgroup));
  }

  void add_jobs_of(uid_t uid, JobIds& ids) const {
    for (const auto& [id, users] : wanted_) {
      const auto& uids = users->uids;
      if (std::find(uids.begin(), uids.end(), uid) != uids.end()) ids.insert(id);
    }
  }

  EnvironmentReader& environments_;
  const std::string proc_;
  const pid_t own_;
  std::map<std::string, const JobUsers*> wanted_;
  // Maps each <id> that processes name to the jobs uid-<uid>.<id> that the processes' users get instead.
  std::multimap<std::string, std::string, std::less<>> separate_jobs_;
  std::unordered_map<pid_t, JobIds> known_;
  LivingProcesses found_;
};

}  // namespace

LivingProcesses find_living_processes(const std::vector<JobUsers>& jobs, EnvironmentReader& environments,
                                      const std::string& proc) {
  return jobs.empty() ? LivingProcesses() : ProcessPass(jobs, environments, proc).run();
}

bool is_living(const Process& process, const std::string& proc) {
  const auto stat = stat_of(process.pid, proc);
  return stat && stat->start_time == process.start_time && !is_dead(*stat);
}

void KnownProcesses::note(pid_t tid) {
  if (tid <= 0) return;
  const auto known = known_.find(tid);
  if (known != known_.end()) {
    known->second.seen = ticks_since_boot();
  } else if (const pid_t process = process_of(tid); process > 0) {
    if (known_.size() >= most_) forget_exited("/proc");
    known_.emplace(tid, Known{process, ticks_since_boot()});
  }
}

void KnownProcesses::forget_exited(const std::string& proc) {
  std::erase_if(known_, [&](const auto& known) {
    const auto& [process, seen] = known.second;
    const auto stat = stat_of(process, proc);
    return !stat || is_dead(*stat) || stat->start_time > seen;
  });
  most_ = std::max(most_, 2 * known_.size());
}

std::optional<Process> KnownProcesses::find_living(const std::string& proc) {
  forget_exited(proc);
  for (const auto& [thread, known] : known_) {
    if (const auto stat = stat_of(known.process, proc)) {
      return Process{known.process, stat->start_time};
    }
  }
  return std::nullopt;
}

}  // namespace cacheshim
