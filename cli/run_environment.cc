// SPDX-License-Identifier: Apache-2.0
#include "cli/run_environment.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/failure.h"
#include "cli/paths.h"
#include "common/exit_codes.h"
#include "common/names.h"

namespace cacheshim::cli {
namespace {

constexpr std::string_view kLibraryName = "libcacheshim.so";
constexpr const char* kPreload = "LD_PRELOAD";
constexpr std::string_view kPreloadSeparators = " :";

[[noreturn]] void fail_id(std::string_view what, const std::string& text) {
  throw Failure(
      kExitUsage,
      fmt::format("invalid {} '{}'; allowed are letters, digits and ._-, at most {} characters",
                  what, text, kMaxJobId));
}

void set_variable(std::string_view name, const std::string& value) {
  (void)::setenv(std::string(name).c_str(), value.c_str(), 1);  // fails only if memory is short
}

}  // namespace

std::string_view ProcessEnvironment::find(std::string_view name) const {
  const char* value = ::getenv(std::string(name).c_str());
  return value == nullptr ? std::string_view() : std::string_view(value);
}

void check_job_id(const std::string& id) {
  if (!is_job_id(id)) fail_id("job id", id);
}

JobId choose_job(const std::string& option) {
  if (!option.empty()) {
    check_job_id(option);
    return JobId::from_text(option);
  }
  const JobId job = job_from_environment(ProcessEnvironment());
  if (!job.empty()) return job;
  return JobId::from_text(fmt::format("run-{}-{}", ::getpid(), ::time(nullptr)));
}

JobId choose_cycle(const std::string& option) {
  if (option.empty()) return cycle_from_environment(ProcessEnvironment());
  if (!is_job_id(option)) fail_id("cycle", option);
  return JobId::from_text(option);
}

bool is_our_library(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1) == kLibraryName;
}

std::vector<std::string> preload_entries(std::string_view list) {
  std::vector<std::string> entries;
  std::size_t at = 0;
  while (at < list.size()) {
    const std::size_t end = std::min(list.find_first_of(kPreloadSeparators, at), list.size());
    if (end > at) entries.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return entries;
}

std::string without_our_library(const std::string& list) {
  std::string kept;
  for (const std::string& entry : preload_entries(list)) {
    if (!is_our_library(entry)) kept += (kept.empty() ? "" : ":") + entry;
  }
  return kept;
}

bool preload(const std::string& library) {
  if (library.find_first_of(kPreloadSeparators) != library.npos) return false;
  if (::access(library.c_str(), R_OK) != 0) return false;
  const std::string others = without_our_library(find_variable(kPreload).value_or(""));
  set_variable(kPreload, others.empty() ? library : library + ":" + others);
  return true;
}

void export_job(const std::string& mount, const JobId& job, const std::string& cycle_option) {
  set_variable(kJobVariable, std::string(job.view()));
  if (!cycle_option.empty()) set_variable(kCycleVariable, cycle_option);
  if (mount != kDefaultMountPoint || find_variable(kMountVariable)) {
    set_variable(kMountVariable, mount);
  }
}

}  // namespace cacheshim::cli
