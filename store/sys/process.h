// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

// Identifies callers and their ancestors by /proc and pidfds.
namespace cacheshim {

// Reads /proc/PID/<file>; `pid` may also be the id of a thread.
Result<std::string> read_proc(pid_t pid, const char* file, const std::string& proc = "/proc");
// Returns field `number` (1-based, 4 and up) of the text of /proc/PID/stat: a field after the
// command. The command itself may contain blanks and parentheses. Returns nothing if the field is
// not a number.
std::optional<std::uint64_t> stat_field(const std::string& stat, int number);
// Returns the value of the line "<name>:" in the text of /proc/PID/status, without leading blanks;
// "" if there is no such line, and for the first line ("Name").
std::string_view status_field(const std::string& status, std::string_view name);

// Returns the process of a thread; 0 if /proc does not show it.
pid_t process_of(pid_t tid);
// Returns nothing if /proc does not show the process. Reads /proc/PID/status, because the owner of /proc/PID may differ
// from the real user: it is another user for a set-id program, and root for a process that is not dumpable. Any process
// can make itself not dumpable.
std::optional<uid_t> real_uid_of(pid_t pid, const std::string& proc = "/proc");

struct ProcessStat {
  char state = '?';  // 'R', 'S', 'Z', … as in proc(5)
  pid_t parent = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot
};
// Whether the process has exited (states Z and X); also true if only its main thread has.
bool is_dead(const ProcessStat& stat);
// Returns the current time in the unit of ProcessStat::start_time.
std::uint64_t ticks_since_boot();
// Whether the thread `tid` is exiting because of a signal; false if /proc does not show it.
bool is_being_killed(pid_t tid);
// boot_id() and pid_namespace() identify the scope within which a PID is valid: this boot and the daemon's PID
// namespace.
std::string boot_id();
std::string pid_namespace();
// Parses the text of /proc/PID/stat. Returns nothing if the text is malformed.
std::optional<ProcessStat> parse_stat(const std::string& text);
// Returns nothing if /proc does not show the process. /proc still shows a zombie. `proc`: the mount
// point of proc(5).
std::optional<ProcessStat> stat_of(pid_t pid, const std::string& proc = "/proc");

// A process, identified by its PID and its start time, because PIDs are reused.
struct Process {
  pid_t pid = 0;                 // in the daemon's PID namespace
  std::uint64_t start_time = 0;  // clock ticks since boot
  friend bool operator==(const Process&, const Process&) = default;
};

// A process, then its parent and so on; empty if /proc does not show it, as for a caller outside
// the daemon's PID namespace.
using Lineage = std::vector<Process>;

// Returns the lineage of a thread's process, of at most 64 processes. Takes about 3 µs per process.
Lineage lineage_of(pid_t tid);
bool contains(const Lineage& lineage, const Process& process);

// Returns a pidfd, readable once the process has exited. Returns an empty descriptor if /proc does
// not show the process any more, or if pidfd_open(2) fails.
UniqueFd watch_process(const Process& process);
// Whether a signal or a debugger has stopped the process.
bool is_stopped(const Process& process);

}  // namespace cacheshim
