// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuse/daemon.h"

namespace cacheshim::cli {

// Waits, at most 10 s, for a daemon that is about to exit: its mount is gone, but its process still
// holds the run directory of the mount point, or the overlay's upperdir or workdir. Returns immediately
// if there is no such daemon. Returns after 2 s if an overlay that is still mounted holds a
// directory: the new daemon then fails with a message about it.
void wait_for_predecessor(const DaemonOptions& options);

}  // namespace cacheshim::cli
