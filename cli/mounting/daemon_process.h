// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "fuse/daemon.h"

namespace cacheshim::cli {

enum class DaemonLife {
  kOnItsOwn,    // continues when this process exits; logs to RUN_DIR/log
  kWithParent,  // gets SIGTERM when this process exits; logs warnings to stderr
};

// Runs serve() in a new process with its own session. Returns its pid when the mount is usable.
// Throws Failure with the daemon's own message if it cannot start. Call from a process with one
// thread.
pid_t start_daemon(const DaemonOptions& options, DaemonLife life);

// Runs serve() in this process, with the log on stderr. Throws Failure like start_daemon().
void run_in_foreground(const DaemonOptions& options);

// Calls run_in_foreground() or start_daemon(): the last step of commands that mount.
void mount_and_serve(const DaemonOptions& options, bool foreground);

}  // namespace cacheshim::cli
