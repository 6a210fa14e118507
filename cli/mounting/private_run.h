// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "fuse/daemon.h"

namespace cacheshim::cli {

// Mounts a store at options.mount_point only for `body`, in a mount namespace of its own, runs
// `body` there and returns its exit code. Afterwards, and also if this process is killed, neither
// the mount nor its daemon nor a process that sees it remains. Throws Failure if it cannot create
// the process; other failures are printed and become the exit code.
int with_private_mount(const DaemonOptions& options, const std::function<int()>& body);

}  // namespace cacheshim::cli
