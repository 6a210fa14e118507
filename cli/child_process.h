// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace cacheshim::cli {

// Selects how run_child() treats a signal that this process gets after its own parent has died: kLeaveRunning
// forwards the signal to the child, kKillChild kills the child.
enum class OrphanPolicy { kLeaveRunning, kKillChild };

// Runs `body` in a child process, which exits with the result, and waits for the child. Returns the
// child's exit code, or 128 + N if signal N killed it, as shells do. The child gets `death_signal`
// when this process dies. Forwards SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 to the
// child, except signals of the terminal, which the kernel also sends to the child. Throws Failure
// if it cannot create the child. Call from a process with one thread.
int run_child(const std::function<int()>& body, int death_signal, OrphanPolicy orphan);

// Replaces this process with a command, found through PATH. Returns only if this fails: prints one
// line and returns a shell's exit code, 127 for a missing command, otherwise 126.
int exec_command(const std::vector<std::string>& command);

}  // namespace cacheshim::cli
