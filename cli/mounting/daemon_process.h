// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "fuse/daemon.h"

namespace cacheshim::cli {

enum class DaemonLife {
  kOnItsOwn,    // goes on when this process ends; logs to RUN_DIR/log
  kWithParent,  // gets SIGTERM when this process ends; logs warnings to stderr
};

// Starts serve() in a process of its own session and returns its pid once the mount is usable.
// Throws Failure with the daemon's own words where it cannot start.
// Call from a process with one thread.
pid_t start_daemon(const DaemonOptions& options, DaemonLife life);

// serve() in this process, logging to stderr. Throws Failure as above.
void run_in_foreground(const DaemonOptions& options);

// One of the two: what commands that mount do in the end.
void mount_and_serve(const DaemonOptions& options, bool foreground);

}  // namespace cacheshim::cli
