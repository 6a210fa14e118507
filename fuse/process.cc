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
  for (int at = kStateField; at <= number; ++at) fields >> field;
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
    const auto stat = read_proc(pid, "stat");
    const auto start_time = stat ? stat_field(*stat, kStartTimeField) : std::nullopt;
    if (!start_time) break;
    lineage.push_back({pid, *start_time});
    pid = static_cast<pid_t>(stat_field(*stat, kParentField).value_or(0));
  }
  return lineage;
}

bool contains(const Lineage& lineage, const Process& process) {
  return std::find(lineage.begin(), lineage.end(), process) != lineage.end();
}

UniqueFd watch_process(const Process& process) {
  UniqueFd watched(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0U)));
  if (!watched) return {};
  const auto stat = read_proc(process.pid, "stat");
  const bool is_same = stat && stat_field(*stat, kStartTimeField) == process.start_time;
  return is_same ? std::move(watched) : UniqueFd();
}

bool is_stopped(const Process& process) {
  const auto stat = read_proc(process.pid, "stat");
  if (!stat || stat_field(*stat, kStartTimeField) != process.start_time) return false;
  const std::string state = text_field(*stat, kStateField);
  return state == "T" || state == "t";
}

}  // namespace cacheshim
