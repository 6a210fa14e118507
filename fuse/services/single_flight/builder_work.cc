// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/builder_work.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "fuse/services/single_flight/pending_call.h"

namespace cacheshim {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kMostProcesses = 64;
// The numbers of the fields in /proc/PID/stat (proc_pid_stat(5)) that contain the process's user time and system time,
// and then those of the children that it has waited for.
constexpr int kTimeFields[] = {14, 15, 16, 17};

nanoseconds processor_time(const std::string& stat) {
  static const auto per_tick = nanoseconds(std::chrono::seconds(1)) / ::sysconf(_SC_CLK_TCK);
  std::uint64_t ticks = 0;
  for (const int field : kTimeFields) ticks += stat_field(stat, field).value_or(0);
  return per_tick * ticks;
}

// Appends the children that `thread` of `process` has forked. Returns true if /proc shows them.
bool add_children(pid_t process, pid_t thread, std::vector<pid_t>& children) {
  const auto text = read_proc(process, fmt::format("task/{}/children", thread).c_str());
  if (!text) return false;
  std::istringstream numbers(*text);
  for (pid_t child; numbers >> child;) children.push_back(child);
  return true;
}

// Adds a process to `work`. /proc/TID/stat of `thread` shows the times of all threads of the process, and the state of
// `thread`.
std::optional<ProcessStat> add_process(pid_t process, pid_t thread, BuilderWork& work) {
  const auto text = read_proc(thread, "stat");
  if (!text) return std::nullopt;
  const auto stat = parse_stat(*text);
  if (!stat) return std::nullopt;
  work.is_running |=
      stat->state == 'R' || stat->state == 'D' || may_complete_entries(thread);
  work.used[process] = processor_time(*text);
  return stat;
}

}  // namespace

std::optional<BuilderWork> work_of(pid_t builder, const Process& thread) {
  BuilderWork work;
  const auto stat = add_process(builder, thread.pid, work);
  if (!stat || stat->start_time != thread.start_time || is_dead(*stat)) {
    work.has_ended = true;
    return work;
  }
  std::vector<pid_t> children;
  if (!add_children(builder, thread.pid, children)) return std::nullopt;
  if (thread.pid != builder) (void)add_children(builder, builder, children);
  while (!children.empty() && work.used.size() < kMostProcesses) {
    const pid_t child = children.back();
    children.pop_back();
    if (add_process(child, child, work)) (void)add_children(child, child, children);
  }
  return work;
}

bool BuilderActivity::note(Time now, const BuilderWork& work) {
  const bool is_first = history_.empty();
  for (const auto& [process, used] : work.used) {
    nanoseconds& known = used_[process];
    if (!is_first) total_ += std::max(used - known, nanoseconds(0));
    known = used;
  }
  std::erase_if(used_, [&](const auto& known) { return !work.used.contains(known.first); });
  if (work.is_running && !is_first) total_ += now - history_.back().first;
  history_.emplace_back(now, total_);
  while (history_.size() > 1 && history_[1].first <= now - kIdleFor) history_.pop_front();
  const auto& [since, total_then] = history_.front();
  return now - since >= kIdleFor && total_ - total_then < kLeastWork;
}

}  // namespace cacheshim
