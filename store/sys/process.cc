// SPDX-License-Identifier: Apache-2.0
#include "store/sys/process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr int kStateField = 3;
constexpr int kParentField = 4;
constexpr int kFlagsField = 9;
constexpr int kThreadsField = 20;
constexpr int kStartTimeField = 22;
constexpr int kExitCodeField = 52;
constexpr std::size_t kMostGenerations = 64;

// Returns an empty text if there is no such field.
std::string_view text_field(std::string_view stat, int number) {
  constexpr std::string_view kBlanks = " \n";
  const auto command_end = stat.rfind(')');
  if (command_end == stat.npos) return {};
  std::string_view fields = stat.substr(command_end + 1);
  for (int at = kStateField;; ++at) {
    const auto begin = fields.find_first_not_of(kBlanks);
    if (begin == fields.npos) return {};
    fields.remove_prefix(begin);
    const auto end = std::min(fields.find_first_of(kBlanks), fields.size());
    if (at == number) return fields.substr(0, end);
    fields.remove_prefix(end);
  }
}

}  // namespace

Result<std::string> read_proc(pid_t pid, const char* file, const std::string& proc) {
  CACHESHIM_TRY(fd, sys::open_path(fmt::format("{}/{}/{}", proc, pid, file), O_RDONLY));
  return sys::read_all(fd.get());
}

std::string_view status_field(const std::string& status, std::string_view name) {
  const auto line = status.find(fmt::format("\n{}:", name));
  if (line == std::string::npos) return {};
  const auto end = std::min(status.find('\n', line + 1), status.size());
  const auto begin = status.find_first_not_of(" \t", line + name.size() + 2);
  return begin < end ? std::string_view(status).substr(begin, end - begin) : std::string_view();
}

pid_t process_of(pid_t tid) {
  const auto status = read_proc(tid, "status");
  return status ? std::atoi(std::string(status_field(*status, "Tgid")).c_str()) : 0;
}

std::optional<uid_t> real_uid_of(pid_t pid, const std::string& proc) {
  const auto status = read_proc(pid, "status", proc);
  if (!status) return std::nullopt;
  const std::string_view ids = status_field(*status, "Uid");
  uid_t uid = 0;
  const auto [end, error] = std::from_chars(ids.data(), ids.data() + ids.size(), uid);
  return error == std::errc() ? std::optional(uid) : std::nullopt;
}

std::optional<ProcessStat> parse_stat(const std::string& text) {
  const auto parent = stat_field(text, kParentField);
  const auto start_time = stat_field(text, kStartTimeField);
  if (!parent || !start_time) return std::nullopt;
  return ProcessStat{text_field(text, kStateField).front(), static_cast<pid_t>(*parent),
                     *start_time};
}

std::optional<ProcessStat> stat_of(pid_t pid, const std::string& proc) {
  const auto text = read_proc(pid, "stat", proc);
  return text ? parse_stat(*text) : std::nullopt;
}

bool is_dead(const ProcessStat& stat) { return stat.state == 'Z' || stat.state == 'X'; }

std::uint64_t ticks_since_boot() {
  static const std::uint64_t ticks_per_second = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  timespec now{};
  (void)::clock_gettime(CLOCK_BOOTTIME, &now);  // cannot fail
  const std::uint64_t nanoseconds_per_tick = 1'000'000'000 / ticks_per_second;
  return static_cast<std::uint64_t>(now.tv_sec) * ticks_per_second +
         static_cast<std::uint64_t>(now.tv_nsec) / nanoseconds_per_tick;
}

// Source: include/linux/sched.h, fs/proc/array.c. Checks two fields, because neither is sufficient: the exit code reads
// as 0 if the daemon may not trace the process, and kSignaled is also set for the other threads of a process that
// exits.
bool is_being_killed(pid_t tid) {
  constexpr std::uint64_t kExiting = 0x4;
  constexpr std::uint64_t kSignaled = 0x400;
  const auto text = tid > 0 ? read_proc(tid, "stat") : Result<std::string>(Errno(ESRCH));
  if (!text) return false;
  const std::uint64_t flags = stat_field(*text, kFlagsField).value_or(0);
  if ((flags & kExiting) == 0) return false;
  if ((stat_field(*text, kExitCodeField).value_or(0) & 0x7f) != 0) return true;
  return (flags & kSignaled) != 0 && stat_field(*text, kThreadsField) == 1;
}

std::string boot_id() {
  const auto fd = sys::open_path("/proc/sys/kernel/random/boot_id", O_RDONLY);
  auto id = fd ? sys::read_all(fd->get()) : Result<std::string>(fd.error());
  return id ? *std::move(id) : "";
}

std::string pid_namespace() {
  auto name = sys::read_link_at(AT_FDCWD, "/proc/self/ns/pid");
  return name ? *std::move(name) : "";
}

std::optional<std::uint64_t> stat_field(const std::string& stat, int number) {
  const std::string_view field = text_field(stat, number);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

Lineage lineage_of(pid_t tid) {
  Lineage lineage;
  pid_t pid = tid > 0 ? process_of(tid) : 0;
  while (pid > 0 && lineage.size() < kMostGenerations) {
    const auto stat = stat_of(pid);
    if (!stat) break;
    lineage.push_back({pid, stat->start_time});
    pid = stat->parent;
  }
  return lineage;
}

bool contains(const Lineage& lineage, const Process& process) {
  return std::find(lineage.begin(), lineage.end(), process) != lineage.end();
}

UniqueFd watch_process(const Process& process) {
  UniqueFd watched(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0U)));
  if (!watched) return {};
  const auto stat = stat_of(process.pid);
  const bool is_same = stat && stat->start_time == process.start_time;
  return is_same ? std::move(watched) : UniqueFd();
}

bool is_stopped(const Process& process) {
  const auto stat = stat_of(process.pid);
  const bool is_same = stat && stat->start_time == process.start_time;
  return is_same && (stat->state == 'T' || stat->state == 't');
}

}  // namespace cacheshim
