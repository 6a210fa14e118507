// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

// What to do about a mount whose daemon is dead or does not answer. It depends on whether a standby takes over:
// then the mount must not be unmounted.
namespace cacheshim::cli {

// The process that takes the mount over from a dead daemon, or waits to do so: `cacheshim mount --standby`. It
// is known by the lock of the run directory. 0 where there is none, or /proc/locks does not show it (another
// PID namespace).
pid_t find_successor(const std::string& mount_point);
// The same while the daemon lives, and has the lock itself.
pid_t find_standby(const std::string& mount_point);

// For people, what to do next: about a mount whose daemon is dead, and about one whose daemon hangs.
std::string dead_mount_advice(const std::string& mount_point);
std::string hung_mount_advice(const std::string& mount_point);

}  // namespace cacheshim::cli
