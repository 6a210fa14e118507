// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/runtime.h"

// Makes the kernel repeat the lookup of a name that exists in the base although the kernel still has a negative dentry
// for it. The kernel can get into this state as follows:
//
//   1. A process looks up an absent name in the mount. The kernel keeps a negative dentry for up to a minute.
//   2. Another job publishes a directory of this name.
//   3. The process calls mkdir(2) for the name. A direct answer (direct.h) returns EEXIST.
//   4. The process creates a file in the directory. The kernel returns ENOENT, without a request to the daemon.
//   5. The daemon's invalidation reaches the kernel.
namespace cacheshim {

// Call after a call on `path`, a path of the mount, has failed with ENOENT. Returns true if the
// base has the object that the call needs: the name, or for kCreate its directory. The kernel has
// then repeated the lookup of this object, so repeat the call. Leaves errno unchanged.
// Async-signal-safe.
bool refresh_stale_name(const char* path, CallKind kind);

}  // namespace cacheshim
