// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace cacheshim::cli {

// What happens to the child when this process's own parent dies and a signal says so.
enum class OrphanPolicy { kGoOn, kKillChild };

// Runs `body` in a child process, which ends with what it returns, and waits for it. Returns its exit
// code, 128 + N where signal N killed it, as shells have it. The child gets `death_signal` when this
// process is killed. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 that are sent to this
// process go on to the child; those of the terminal reach it anyway.
// Throws Failure where there can be no child. Call from a process with one thread.
int run_child(const std::function<int()>& body, int death_signal, OrphanPolicy orphan);

// Replaces this process by a command, found through PATH. Returns only where that fails, with the
// exit code that shells give: 127 for a command that is not there, else 126; one line is printed.
int exec_command(const std::vector<std::string>& command);

}  // namespace cacheshim::cli
