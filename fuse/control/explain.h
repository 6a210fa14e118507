// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "store/publish/rejected_entries.h"
#include "store/threads/slices.h"

namespace cacheshim {

class Inspector;
class Mount;
class Job;

// Returns the record of an entry that jobs have rejected, in the form that `status` and `explain` show, without the
// entry's name.
nlohmann::ordered_json describe(const RejectedEntries::Summary& summary);

// Reports where a job's view gets `path` from, who published it and when, and why it is hidden or not published
// (docs/control.md, "explain"). If `job` is null, reports on the base alone. Omits digests of content that `inspector`
// may not read. Requires: the inspector may look up `path`. Searches the whole audit log and computes the file's
// digest, which can take a long time: call from a task. Errors: ECANCELED (slices.h).
Result<nlohmann::ordered_json> explain_path(Mount& mount, Job* job, const std::string& path,
                                            const Inspector& inspector, const IsWanted& is_wanted);

}  // namespace cacheshim
