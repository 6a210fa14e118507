// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

// Finds the job of a process. The daemon and the preloaded library share this code.
namespace cacheshim {

inline constexpr std::size_t kMaxJobId = 128;  // bytes

// A job id stored inline: only letters, digits and ._-, at most kMaxJobId bytes. Other characters,
// and the first character of "." and "..", are replaced with '_'. Empty means "none".
class JobId {
 public:
  JobId() = default;
  // Converts any text to a valid id, as above.
  static JobId from_text(std::string_view text);
  static JobId for_uid(uid_t uid);  // uid-<uid>, the user's own job
  // Returns uid-<uid>.<id>, truncated to kMaxJobId bytes: the job that the user's processes get if they name the job
  // `id` but the user may not use it.
  static JobId for_uid(uid_t uid, std::string_view id);

  bool empty() const { return length_ == 0; }
  std::string_view view() const { return {text_.data(), length_}; }
  // Converts the text as above; truncates the id to kMaxJobId bytes.
  void append(std::string_view text);

 private:
  std::array<char, kMaxJobId> text_{};
  std::size_t length_ = 0;
};

// An id uid-<uid>, or uid-<uid>.<any text>, belongs to that user by construction: no other user except
// root can begin a job with this id, neither by a variable nor by a request.

// Whether the id has the form uid-<uid>: the id of a user's own job.
bool is_own_job(std::string_view id);
// Returns the user to whom the id belongs by construction, if there is one.
std::optional<uid_t> owner_of_id(std::string_view id);
// Whether the id belongs by construction to a user other than `uid`. Also true for a uid-<digits> that is not the
// normal form of any user id, such as uid-007.
bool is_of_another_uid(std::string_view id, uid_t uid);

// Whether `text` is a job id: not empty, and not changed by from_text().
bool is_job_id(std::string_view text);

// Reads environment variables. `find` returns the value of `name`, or an empty text if the variable
// is unset or empty. The text is valid as long as the environment is.
class Environment {
 public:
  virtual std::string_view find(std::string_view name) const = 0;

 protected:
  ~Environment() = default;
};

// An environment block in the format of /proc/PID/environ: NAME=value strings, each ended by a NUL.
class EnvironmentBlock final : public Environment {
 public:
  explicit EnvironmentBlock(std::string_view block) : block_(block) {}
  std::string_view find(std::string_view name) const override;

 private:
  std::string_view block_;
};

// Returns the job that the environment names, or an empty id. Uses the first of these variables that is set and not
// empty: CACHESHIM_JOB, SLURM_JOB_ID, GITHUB_RUN_ID, CI_JOB_ID, BUILD_TAG, PBS_JOBID, LSB_JOBID. If the id is from
// GITHUB_RUN_ID, appends the values of GITHUB_JOB and RUNNER_NAME that are set and not empty, each after a '-'.
JobId job_from_environment(const Environment& environment);

// Returns the SLURM job that the text of /proc/PID/cgroup names by a path component job_<digits>,
// or an empty id.
JobId slurm_job_from_cgroup(std::string_view cgroup_text);

// Returns the job's cycle (attempt): the value of the first of CACHESHIM_CYCLE, SLURM_RESTART_COUNT, GITHUB_RUN_ATTEMPT
// and TORCHELASTIC_RESTART_COUNT that is set and not empty, converted to a valid id; "0" if there is none.
JobId cycle_from_environment(const Environment& environment);

}  // namespace cacheshim
