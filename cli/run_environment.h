// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/job_id.h"

namespace cacheshim::cli {

// This process's own environment.
class ProcessEnvironment final : public Environment {
 public:
  std::string_view find(std::string_view name) const override;
};

// The job and the attempt that a `run` belongs to: what the option says, else what the environment
// says, else a job of its own. Throws Failure (usage) for an option that is no id.
JobId choose_job(const std::string& option);
JobId choose_cycle(const std::string& option);

// Throws Failure (usage) with what is allowed where `id` is no job id.
void check_job_id(const std::string& id);

// `list`, as LD_PRELOAD is (blanks or colons between), without our library's entries.
std::string without_our_library(const std::string& list);

// Whether an entry of LD_PRELOAD is our library, by its name.
bool is_our_library(std::string_view path);
// The entries of such a list.
std::vector<std::string> preload_entries(std::string_view list);

// Puts `library` in front of LD_PRELOAD. False where it is not there or cannot be named there.
bool preload(const std::string& library);

// Sets what the command and the preloaded library go by.
void export_job(const std::string& mount, const JobId& job, const std::string& cycle_option);

}  // namespace cacheshim::cli
