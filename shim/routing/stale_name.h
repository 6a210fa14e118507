// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/runtime.h"

// Names that the base has, but that the kernel still caches as absent:
//
//   1. A process looks up a name in the mount. The kernel caches for a minute that it is absent.
//   2. Another job publishes the name.
//   3. A direct answer (direct.h) shows it: mkdir(2) of a directory gives EEXIST.
//   4. The process makes a file in the directory. The mount gives ENOENT, without a request to the daemon.
//   5. The daemon's invalidation reaches the kernel.
namespace cacheshim {

// Call after a call on the mount's `path` has failed with ENOENT. Returns whether the base has the
// object that the call needs: the name, or for kCreate its directory. The kernel has then looked
// this object up again, so repeat the call. Leaves errno unchanged. Async-signal-safe.
bool refresh_stale_name(const char* path, CallKind kind);

}  // namespace cacheshim
