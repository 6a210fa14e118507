// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "fuse/daemon.h"

namespace cacheshim::cli {

// Mounts a store or a plain overlay at options.mount_point, only for `body` and in a separate mount namespace. Runs
// `body` there and returns its exit code. Afterwards, and also if this process is killed, the mount, its daemon and all
// processes that see the mount are gone. Throws Failure if it cannot create the child process; prints any other failure
// and returns its exit code.
int with_private_mount(const DaemonOptions& options, const std::function<int()>& body);

}  // namespace cacheshim::cli
