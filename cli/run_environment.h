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

// Return the job id and the cycle of a `run`: from the option if it is set, otherwise from the environment. If neither
// names a job, choose_job() makes a new id; if neither names a cycle, choose_cycle() returns "0". Throw Failure (usage)
// for an invalid option.
JobId choose_job(const std::string& option);
JobId choose_cycle(const std::string& option);

// Throws Failure (usage) with the allowed characters if `id` is not a job id.
void check_job_id(const std::string& id);

// Returns `list`, in the format of LD_PRELOAD (separated by blanks or colons), without our
// library's entries.
std::string without_our_library(const std::string& list);

// Whether an entry of LD_PRELOAD names our library.
bool is_our_library(std::string_view path);
// Returns the entries of a list in the format of LD_PRELOAD.
std::vector<std::string> preload_entries(std::string_view list);

// Puts `library` in front of LD_PRELOAD. Returns false if the library cannot be read, or if LD_PRELOAD cannot contain
// its path.
bool preload(const std::string& library);

// Sets the variables that the command and the preloaded library read.
void export_job(const std::string& mount, const JobId& job, const std::string& cycle_option);

}  // namespace cacheshim::cli
