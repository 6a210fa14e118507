// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/runtime.h"

// Names that the base has got and that the kernel still takes for absent.
//
//   1. A process asks the mount for a name. The kernel keeps the answer, that there is none, for a minute.
//   2. Another job publishes the name.
//   3. A direct answer (direct.h) shows it: mkdir(2) of a directory gives EEXIST.
//   4. The process makes a file in the directory. The mount gives ENOENT, without asking the daemon.
//   5. The daemon's invalidation reaches the kernel.
namespace cacheshim {

// Call after a call for the mount's `path` has failed with ENOENT. Returns whether the base has what the call needs: the
// name, or for kCreate its directory. The kernel has then looked that up again, so that the call is worth repeating.
// Leaves errno alone. Async-signal-safe.
bool refresh_stale_name(const char* path, CallKind kind);

}  // namespace cacheshim
