// SPDX-License-Identifier: Apache-2.0
#include "common/job_id.h"

#include <cstring>

#include "common/text_scan.h"

namespace cacheshim {
namespace {

constexpr bool is_id_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '.' || c == '_' ||
         c == '-';
}

// Whether the text is "." or "..", which cannot be the name of a job's directory.
bool is_dots(std::string_view text) { return text == "." || text == ".."; }

constexpr std::string_view kUserPrefix = "uid-";

// Returns the part uid-<digits> of an id uid-<digits> or uid-<digits>.<any text>; empty for all
// other ids.
std::string_view user_part(std::string_view id) {
  const std::size_t prefix = kUserPrefix.size();
  if (id.size() <= prefix || std::memcmp(id.data(), kUserPrefix.data(), prefix) != 0) return {};
  std::size_t end = prefix;
  while (end < id.size() && is_digit(id.data()[end])) ++end;
  const bool is_whole = end == id.size() || id.data()[end] == '.';
  return end > prefix && is_whole ? std::string_view(id.data(), end) : std::string_view();
}

JobId github_job(const Environment& environment) {
  const std::string_view run = environment.find("GITHUB_RUN_ID");
  if (run.empty()) return {};
  JobId id = JobId::from_text(run);
  for (const std::string_view name : {"GITHUB_JOB", "RUNNER_NAME"}) {
    const std::string_view part = environment.find(name);
    if (part.empty()) continue;
    id.append("-");
    id.append(part);
  }
  return id;
}

}  // namespace

JobId JobId::from_text(std::string_view text) {
  JobId id;
  id.append(text);
  return id;
}

JobId JobId::for_uid(uid_t uid) {
  char digits[16];
  std::size_t start = sizeof digits;
  do {
    digits[--start] = static_cast<char>('0' + uid % 10);
    uid /= 10;
  } while (uid != 0);
  JobId id = from_text(kUserPrefix);
  id.append({digits + start, sizeof digits - start});
  return id;
}

JobId JobId::for_uid(uid_t uid, std::string_view id) {
  JobId made = for_uid(uid);
  made.append(".");
  made.append(id);
  return made;
}

void JobId::append(std::string_view text) {
  char* out = text_.data();
  const char* in = text.data();
  for (std::size_t i = 0; i < text.size() && length_ < kMaxJobId; ++i) {
    out[length_++] = is_id_char(in[i]) ? in[i] : '_';
  }
  if (is_dots(view())) out[0] = '_';
}

bool is_job_id(std::string_view text) {
  if (text.empty() || text.size() > kMaxJobId || is_dots(text)) return false;
  for (const char c : text) {
    if (!is_id_char(c)) return false;
  }
  return true;
}

bool is_own_job(std::string_view id) {
  return !user_part(id).empty() && user_part(id).size() == id.size() && owner_of_id(id).has_value();
}

std::optional<uid_t> owner_of_id(std::string_view id) {
  const std::string_view user = user_part(id);
  uid_t uid = 0;
  for (std::size_t i = kUserPrefix.size(); i < user.size(); ++i) {
    uid = uid * 10 + static_cast<uid_t>(user.data()[i] - '0');
  }
  if (user.empty() || JobId::for_uid(uid).view() != user) return std::nullopt;
  return uid;
}

bool is_of_another_uid(std::string_view id, uid_t uid) {
  const std::string_view user = user_part(id);
  return !user.empty() && JobId::for_uid(uid).view() != user;
}

std::string_view EnvironmentBlock::find(std::string_view name) const {
  std::string_view rest = block_;
  while (!rest.empty()) {
    std::string_view value = take_until(rest, '\0');
    const std::size_t whole = value.size();
    const std::string_view key = take_until(value, '=');
    if (key == name && key.size() < whole) return value;
  }
  return {};
}

JobId job_from_environment(const Environment& environment) {
  for (const std::string_view name : {"CACHESHIM_JOB", "SLURM_JOB_ID"}) {
    const JobId id = JobId::from_text(environment.find(name));
    if (!id.empty()) return id;
  }
  if (const JobId id = github_job(environment); !id.empty()) return id;
  for (const std::string_view name : {"CI_JOB_ID", "BUILD_TAG", "PBS_JOBID", "LSB_JOBID"}) {
    const JobId id = JobId::from_text(environment.find(name));
    if (!id.empty()) return id;
  }
  return {};
}

JobId slurm_job_from_cgroup(std::string_view cgroup_text) {
  constexpr std::string_view kPrefix = "job_";
  while (!cgroup_text.empty()) {
    std::string_view line = take_until(cgroup_text, '\n');
    while (!line.empty()) {
      const std::string_view component = take_until(line, '/');
      if (component.size() <= kPrefix.size()) continue;
      if (std::memcmp(component.data(), kPrefix.data(), kPrefix.size()) != 0) continue;
      const std::string_view number(component.data() + kPrefix.size(),
                                    component.size() - kPrefix.size());
      bool digits = true;
      for (const char c : number) digits = digits && is_digit(c);
      if (digits) return JobId::from_text(number);
    }
  }
  return {};
}

JobId cycle_from_environment(const Environment& environment) {
  for (const std::string_view name : {"CACHESHIM_CYCLE", "SLURM_RESTART_COUNT",
                                      "GITHUB_RUN_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"}) {
    const JobId cycle = JobId::from_text(environment.find(name));
    if (!cycle.empty()) return cycle;
  }
  return JobId::from_text("0");
}

}  // namespace cacheshim
