// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "fuse/jobs/owner_mode.h"

namespace cacheshim {

// Gives up every capability that a daemon with these owners does not need, and sets no_new_privs: neither the calling
// thread, nor a thread that it creates later, nor a program that one of them executes gets a capability back.
// docs/security.md says what the daemon needs the others for. Requires: the process has one thread, because each thread
// has capabilities of its own. Errors: those of capset(2) and prctl(2); the thread may then keep all of its
// capabilities.
Status drop_capabilities(const OwnerMode& owners);

}  // namespace cacheshim
