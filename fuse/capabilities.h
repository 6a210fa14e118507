// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"
#include "fuse/jobs/owner_mode.h"

namespace cacheshim {

// Gives up every capability that a daemon with this owner mode does not need, and sets no_new_privs. From then on,
// neither the calling thread, nor threads that it starts, nor programs that they execute can get a capability back.
// docs/security.md says why the daemon needs the remaining capabilities. If the process has CAP_SETPCAP, setfsuid(2) no
// longer changes the thread's capabilities (SECBIT_NO_SETUID_FIXUP), which makes UserCredentials faster. Requires: the
// process has one thread, because each thread has its own capabilities. Errors: those of capset(2) and prctl(2); the
// thread may then keep all of its capabilities.
// `starts_helper`: whether the daemon starts cacheshim-remote (docs/remote.md) or cacheshim-metrics (docs/metrics.md).
Status drop_capabilities(const OwnerMode& owners, bool starts_helper);

}  // namespace cacheshim
