// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "fuse/daemon.h"

namespace cacheshim::cli {

// Mounts a store at options.mount_point for `body` alone, in a mount namespace of its own, runs
// `body` there and returns its exit code. Afterwards, and also when this process is killed, neither
// the mount nor its daemon nor a process that sees it is left. Throws Failure where there is no
// process to do it in; other failures are printed and become the exit code.
int with_private_mount(const DaemonOptions& options, const std::function<int()>& body);

}  // namespace cacheshim::cli
