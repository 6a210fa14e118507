// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

// Finds the standby of a mount, and advises the user about a mount whose daemon is dead or does not answer. If a
// standby takes over, the mount must not be unmounted.
namespace cacheshim::cli {

// Returns the process that takes over the mount of a dead daemon, or waits to do so (`cacheshim
// mount --standby`). The lock of the run directory identifies it. Returns 0 if there is none, or if
// /proc/locks does not show it (another PID namespace).
pid_t find_successor(const std::string& mount_point);
// As find_successor(), but returns only a process that waits for the lock. Use it while the daemon is alive and holds
// the lock.
pid_t find_standby(const std::string& mount_point);

// Return advice to the user about a mount whose daemon is dead, and about one whose daemon hangs.
std::string dead_mount_advice(const std::string& mount_point);
std::string hung_mount_advice(const std::string& mount_point);

}  // namespace cacheshim::cli
