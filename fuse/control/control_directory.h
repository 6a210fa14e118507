// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "fuse/mount.h"
#include "fuse/requests/control_files.h"

namespace cacheshim {

// The mount's control directory (docs/control.md). Thread-safe; call with no lock held.
class ControlDirectory final : public ControlFiles {
 public:
  explicit ControlDirectory(Mount& mount) : mount_(mount) {}

  std::string text_of(const std::string& name, const Caller& caller) override;
  Result<std::string> text_of_job(Job& job, const Caller& caller) override;
  // Errors: EINVAL if `request` is not a JSON object with an `op`, EBUSY if the session already has a request, EAGAIN
  // if too many requests of the user are in progress.
  Status submit(const std::shared_ptr<ControlSession>& session, const Caller& caller,
                std::string_view request) override;

 private:
  Mount& mount_;
};

nlohmann::ordered_json describe_job(Job& job, const std::string& layers_dir);
// Appends the JSON of describe_job() to `text`. If `with_layer` is false, omits the path of the job's layer, the name
// of its pack, and the reason why the job may not publish, which may name the job's files. For ten thousand jobs,
// appending takes a tenth of the time that building JSON trees takes.
void append_job(const JobTable::State& state, const std::string& layers_dir, bool with_layer,
                std::string& text);

}  // namespace cacheshim
