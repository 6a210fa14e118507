// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "store/publish/rejected_entries.h"

namespace cacheshim {

class Mount;
class Job;

// The record of an entry that its readers reject, as `status` and `explain` give it; without its name.
nlohmann::ordered_json describe(const RejectedEntries::Summary& summary);

// Where a path of the store comes from for a job, who published it and when, and why it was not or is not
// seen (docs/control.md, "explain"). `job` may be null: then the base alone is looked at. Takes long where
// the records are many; call from a task.
nlohmann::ordered_json explain_path(Mount& mount, Job* job, const std::string& path);

}  // namespace cacheshim
