// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/caller.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/auxv.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <sstream>

#include "common/names.h"
#include "store/sys/process.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr int kMostAncestors = 32;
constexpr std::chrono::seconds kSlurmPollInterval{1};
constexpr std::size_t kMostCachedThreads = 16384;  // threads; a full table is cleared

std::string read_proc_text(pid_t pid, const char* file) {
  auto text = read_proc(pid, file);
  return text ? *std::move(text) : std::string();
}

pid_t parent_of(pid_t pid) {
  const auto stat = read_proc(pid, "stat");
  if (!stat) return 0;
  return static_cast<pid_t>(stat_field(*stat, 4).value_or(0));
}

// Whether all four user ids of the process are `uid`. The owner of /proc/PID does not suffice: it
// is root for every process that is not dumpable.
bool is_wholly_of(pid_t pid, uid_t uid) {
  const auto status = read_proc(pid, "status");
  if (!status) return false;
  std::istringstream numbers{std::string(status_field(*status, "Uid"))};
  int count = 0;
  for (uid_t one; numbers >> one; ++count) {
    if (one != uid) return false;
  }
  return count == 4;
}

template <class Word>
std::optional<Word> find_in_auxv(const std::string& auxv, Word key) {
  Word entry[2];
  for (std::size_t at = 0; at + sizeof entry <= auxv.size(); at += sizeof entry) {
    std::memcpy(entry, auxv.data() + at, sizeof entry);
    if (entry[0] == key) return entry[1];
  }
  return std::nullopt;
}

// Whether the environment of a process comes from the user that the process runs as. A program with
// a set-id bit or file capabilities gets its environment from its caller: sudo and su run as root
// with another user's variables. Source: getauxval(3), AT_SECURE.
bool has_own_environment(pid_t pid) {
  const auto auxv = read_proc(pid, "auxv");
  if (!auxv) return false;
  if (find_in_auxv<std::uint64_t>(*auxv, AT_PAGESZ)) {
    return find_in_auxv<std::uint64_t>(*auxv, AT_SECURE) == 0U;
  }
  return find_in_auxv<std::uint32_t>(*auxv, AT_SECURE) == 0U;  // the format of a 32-bit process
}

std::optional<JobClaim> claim_of_process(pid_t pid, uid_t uid, std::string block) {
  // `environment` points into `block`. `block` and `cgroup_text` are empty if /proc does not show them.
  if (!has_own_environment(pid)) block.clear();
  const std::string cgroup_text = read_proc_text(pid, "cgroup");
  const EnvironmentBlock environment(block);
  const JobId cgroup_job = slurm_job_from_cgroup(cgroup_text);
  JobClaim claim{job_from_environment(environment), cycle_from_environment(environment),
                 parse_publish_policy(environment.find(kPublishVariable))};
  claim.accepts_sharing = !environment.find(kJobVariable).empty();
  // SLURM's cgroups, if they exist, take precedence over SLURM's variables.
  const bool from_slurm =
      environment.find(kJobVariable).empty() && !environment.find("SLURM_JOB_ID").empty();
  if (!cgroup_job.empty() && (claim.job.empty() || from_slurm)) claim.job = cgroup_job;
  if (claim.job.empty() || is_of_another_uid(claim.job.view(), uid)) return std::nullopt;
  return claim;
}

}  // namespace

std::vector<gid_t> groups_of(pid_t tid) {
  std::vector<gid_t> groups;
  const auto status = read_proc(tid, "status");
  if (!status) return groups;
  std::istringstream numbers(std::string(status_field(*status, "Groups")));
  for (gid_t gid; numbers >> gid;) groups.push_back(gid);
  return groups;
}

std::optional<CallerJobs::Image> CallerJobs::image_of(const Caller& caller) {
  const auto stat =
      caller.tid > 0 ? read_proc(caller.tid, "stat") : Result<std::string>(Errno(ESRCH));
  const auto start_time = stat ? stat_field(*stat, 22) : std::nullopt;
  if (!start_time) return std::nullopt;
  return Image{*start_time, stat_field(*stat, 50).value_or(0), caller.uid};
}

SlurmProof CallerJobs::proof_of(const Caller& caller, std::string_view id) const {
  const bool is_number = !id.empty() && id.find_first_not_of("0123456789") == id.npos;
  if (!is_number) return SlurmProof::kNotNeeded;
  const auto text =
      caller.tid > 0 ? read_proc(caller.tid, "cgroup") : Result<std::string>(Errno(ESRCH));
  if (text && cgroups_.job_of(*text).view() == id) return SlurmProof::kGiven;
  return has_slurm() ? SlurmProof::kMissing : SlurmProof::kNotNeeded;
}

bool CallerJobs::has_slurm() const {
  const auto now = std::chrono::steady_clock::now();
  if (now < no_slurm_until_.load()) return false;
  if (cgroups_.has_slurm()) return true;
  no_slurm_until_ = now + kSlurmPollInterval;
  return false;
}

CallerJobs::Found CallerJobs::find_claim(const Caller& caller) {
  bool is_complete = true;
  pid_t pid = caller.tid;  // /proc/TID works for any thread
  for (int step = 0; pid > 1 && step < kMostAncestors; ++step) {
    auto environment = environments_.read(pid, caller.uid);
    if (environment.failed_with(ETIMEDOUT)) is_complete = false;
    std::string block = environment ? *std::move(environment) : std::string();
    if (auto claim = claim_of_process(pid, caller.uid, std::move(block))) {
      return {*std::move(claim), is_complete};
    }
    pid = parent_of(pid);
    if (pid <= 1 || !is_wholly_of(pid, caller.uid)) break;  // another user's claim does not count
  }
  return {JobClaim{JobId::for_uid(caller.uid), JobId::from_text("0"), std::nullopt}, is_complete};
}

std::optional<JobClaim> CallerJobs::known_claim(pid_t tid, const Image& image) const {
  const MutexLock lock(mutex_);
  const auto known = known_.find(tid);
  if (known == known_.end() || known->second.image != image) return std::nullopt;
  return known->second.claim;
}

// Returns the claim that is cached for the main thread. Reading the environment again would take longer, and a program
// that sets its process title may have overwritten the environment.
std::optional<JobClaim> CallerJobs::claim_of_main_thread(const Caller& caller,
                                                         const Image& image) const {
  const pid_t process = process_of(caller.tid);
  if (process == caller.tid || image.environment_start == 0) return std::nullopt;
  const auto main = image_of({caller.uid, caller.gid, process});
  if (!main || main->environment_start != image.environment_start) return std::nullopt;
  return known_claim(process, *main);
}

void CallerJobs::remember(pid_t tid, const Image& image, const JobClaim& claim) {
  const MutexLock lock(mutex_);
  if (known_.size() >= kMostCachedThreads) known_.clear();
  known_.insert_or_assign(tid, Known{image, claim});
}

JobClaim CallerJobs::claim_of(const Caller& caller) {
  const auto image = image_of(caller);
  if (!image) return JobClaim{JobId::for_uid(caller.uid), JobId::from_text("0"), std::nullopt};
  if (auto known = known_claim(caller.tid, *image)) return *std::move(known);
  if (const auto of_main = claim_of_main_thread(caller, *image)) {
    remember(caller.tid, *image, *of_main);
    return *of_main;
  }
  auto [claim, is_complete] = find_claim(caller);
  claim.proof = proof_of(caller, claim.job.view());
  if (is_complete) remember(caller.tid, *image, claim);
  return claim;
}

}  // namespace cacheshim
