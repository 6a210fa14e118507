// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "fuse/daemon.h"

namespace cacheshim::cli {

enum class DaemonLife {
  kOnItsOwn,    // continues when this process exits; logs to RUN_DIR/log
  kWithParent,  // gets SIGTERM when this process exits; logs warnings to stderr
};

// Starts serve() in a process with its own session and returns its pid once the mount is usable.
// Throws Failure with the daemon's own message if it cannot start. Call from a process with one
// thread.
pid_t start_daemon(const DaemonOptions& options, DaemonLife life);

// Runs serve() in this process, logging to stderr. Throws Failure as above.
void run_in_foreground(const DaemonOptions& options);

// Calls one of the two: the last step of commands that mount.
void mount_and_serve(const DaemonOptions& options, bool foreground);

}  // namespace cacheshim::cli
