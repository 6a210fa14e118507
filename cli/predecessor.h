// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuse/daemon.h"

namespace cacheshim::cli {

// Waits, at most 10 s, for a daemon that is on its way out: its mount is gone, its process still has the
// run directory of the mount point, or the overlay's upperdir or workdir. Returns at once if there is none,
// and after 2 s if an overlay that is still mounted has a directory: the daemon to be started then says so.
void wait_for_predecessor(const DaemonOptions& options);

}  // namespace cacheshim::cli
