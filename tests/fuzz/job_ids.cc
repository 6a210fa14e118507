// SPDX-License-Identifier: Apache-2.0
// Fuzzes the parsers of job ids and of a caller's files in /proc, whose content the caller influences. The first byte
// of the input selects the parser.
#include "common/job_id.h"

#include "common/names.h"
#include "store/profiles/publish_policy.h"
#include "store/sys/process.h"
#include "tests/fuzz/target.h"

namespace cacheshim::fuzz {
namespace {

void require_valid(const JobId& id) { require(id.empty() || is_job_id(id.view())); }

void read_environment(std::string_view text) {
  const EnvironmentBlock environment(text);
  const JobId job = job_from_environment(environment);
  require_valid(job);
  require_valid(cycle_from_environment(environment));
  (void)parse_publish_policy(environment.find(kPublishVariable));
  (void)is_of_another_uid(job.view(), 7);
  require(JobId::from_text(job.view()).view() == job.view());
}

void read_cgroup(std::string_view text) { require_valid(slurm_job_from_cgroup(text)); }

void read_stat(std::string_view text) {
  const std::string stat(text);
  for (const int number : {4, 22, 50}) (void)stat_field(stat, number);
}

void read_status(std::string_view text) {
  const std::string status(text);
  for (const char* name : {"Uid", "Groups", "NSpid", "Tgid"}) touch(status_field(status, name));
}

void convert(std::string_view text) {
  require_valid(JobId::from_text(text));
  (void)is_of_another_uid(text, 7);
  char out[512];
  require(escape_mount_path(text, out, sizeof out) <= sizeof out);
}

}  // namespace
}  // namespace cacheshim::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cacheshim::fuzz;
  read_selected({{'e', read_environment},
                 {'c', read_cgroup},
                 {'s', read_stat},
                 {'u', read_status},
                 {'i', convert}},
                data, size);
  return 0;
}
