// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/runtime.h"

// Makes the kernel look up again a name that the base has, but that the kernel still caches as absent. Such a name
// arises as follows:
//
//   1. A process looks up a name in the mount. The kernel caches for a minute that it is absent.
//   2. Another job publishes the name.
//   3. A direct answer (direct.h) shows that the name exists: mkdir(2) returns EEXIST.
//   4. The process creates a file in the directory of this name. The kernel returns ENOENT, without a request to the
//      daemon.
//   5. The daemon's invalidation reaches the kernel.
namespace cacheshim {

// Call after a call on `path`, a path of the mount, has failed with ENOENT. Returns true if the
// base has the object that the call needs: the name, or for kCreate its directory. The kernel has
// then repeated the lookup of this object, so repeat the call. Leaves errno unchanged.
// Async-signal-safe.
bool refresh_stale_name(const char* path, CallKind kind);

}  // namespace cacheshim
