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

// Processes by what /proc and pidfds tell of them: who a caller is, and whose descendant.
namespace cacheshim {

// All of /proc/PID/<file>; a thread's number does as well.
Result<std::string> read_proc(pid_t pid, const char* file, const std::string& proc = "/proc");
// Of field `number` (1-based, 4 and up) of the text of /proc/PID/stat: those behind the command, which
// may hold blanks and parentheses. Nothing where it is no number.
std::optional<std::uint64_t> stat_field(const std::string& stat, int number);
// Of the line "<name>:" of the text of /proc/PID/status, without the blanks before it. Empty where there
// is none.
std::string_view status_field(const std::string& status, std::string_view name);

// The process that a thread belongs to; 0 where /proc does not tell.
pid_t process_of(pid_t tid);

struct ProcessStat {
  char state = '?';  // 'R', 'S', 'Z', … as proc(5) has it
  pid_t parent = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot
};
// A zombie, or on its way out for good.
bool is_dead(const ProcessStat& stat);
// Now, as ProcessStat::start_time counts.
std::uint64_t ticks_since_boot();
// Whether this thread is on its way out, and a signal is why.
bool is_being_killed(pid_t tid);
// What process numbers are of: this boot of the machine, and our pid namespace.
std::string boot_id();
std::string pid_namespace();
// Of the text of /proc/PID/stat. No value where it has another form.
std::optional<ProcessStat> parse_stat(const std::string& text);
// No value for a process that is gone. `proc`: where proc(5) is mounted.
std::optional<ProcessStat> stat_of(pid_t pid, const std::string& proc = "/proc");

// One process, whatever happens to its number later.
struct Process {
  pid_t pid = 0;                 // in the daemon's pid namespace
  std::uint64_t start_time = 0;  // clock ticks since boot
  friend bool operator==(const Process&, const Process&) = default;
};

// A process, then its parent and so on; empty where /proc does not tell, as of a caller from outside
// the daemon's pid namespace.
using Lineage = std::vector<Process>;

// That of the process of a thread. Some 3 µs a generation.
Lineage lineage_of(pid_t tid);
bool contains(const Lineage& lineage, const Process& process);

// A pidfd, readable from the process's end on; empty where it has ended.
UniqueFd watch_process(const Process& process);
// Whether a signal or a debugger has stopped it.
bool is_stopped(const Process& process);

}  // namespace cacheshim
