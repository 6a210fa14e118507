// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "fuse/jobs/caller.h"

namespace cacheshim {

class ControlSession;
class Mount;

// Executes a request of the control directory (docs/control.md). Answers it through the session, before this function
// returns or later on another thread.
void run_control_request(Mount& mount, const Caller& caller, const nlohmann::json& request,
                         const std::shared_ptr<ControlSession>& session);

}  // namespace cacheshim
