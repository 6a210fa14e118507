// SPDX-License-Identifier: Apache-2.0
#include "fuse/process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "store/sys.h"

namespace cacheshim {
namespace {

constexpr int kStateField = 3;
constexpr int kParentField = 4;
constexpr int kStartTimeField = 22;
constexpr std::size_t kMostGenerations = 64;

std::string text_field(const std::string& stat, int number) {
  const auto command_end = stat.rfind(')');
  if (command_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(command_end + 1));
  std::string field;
  for (int at = kStateField; at <= number; ++at) {
    if (!(fields >> field)) return {};
  }
  return field;
}

pid_t process_of(pid_t tid) {
  const auto status = read_proc(tid, "status");
  constexpr std::string_view kLabel = "\nTgid:\t";
  const auto at = status ? status->find(kLabel) : std::string::npos;
  if (at == std::string::npos) return 0;
  return std::atoi(status->c_str() + at + kLabel.size());
}

}  // namespace

Result<std::string> read_proc(pid_t pid, const char* file) {
  CACHESHIM_TRY(fd, sys::open_path(fmt::format("/proc/{}/{}", pid, file), O_RDONLY));
  return sys::read_all(fd.get());
}

std::optional<ProcessStat> stat_of(pid_t pid) {
  const auto text = read_proc(pid, "stat");
  const auto parent = text ? stat_field(*text, kParentField) : std::nullopt;
  const auto start_time = text ? stat_field(*text, kStartTimeField) : std::nullopt;
  if (!parent || !start_time) return std::nullopt;
  return ProcessStat{text_field(*text, kStateField).front(), static_cast<pid_t>(*parent),
                     *start_time};
}

std::optional<std::uint64_t> stat_field(const std::string& stat, int number) {
  const std::string field = text_field(stat, number);
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
