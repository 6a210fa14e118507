// SPDX-License-Identifier: Apache-2.0
#include "store/sys/process_origin.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <unistd.h>

#include "store/sys/process.h"

namespace cacheshim {
namespace {

std::string link_at(const std::string& path) {
  std::array<char, PATH_MAX> target;
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : std::string();
}

void for_each_number(const std::string& directory, const std::function<void(pid_t)>& function) {
  DIR* const dir = ::opendir(directory.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    pid_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) function(number);
  }
  (void)::closedir(dir);
}

}  // namespace

ProcessOrigin ProcessOrigin::from_before_boot() {
  return {-1, std::numeric_limits<std::uint64_t>::max(), {}};
}

ProcessOrigin origin_of(pid_t process) {
  ProcessOrigin origin;
  const Lineage lineage = process > 0 ? lineage_of(process) : Lineage();
  if (lineage.empty() || lineage.front().pid != process) return origin;
  origin.process = process;
  origin.start_time = lineage.front().start_time;
  for (std::size_t i = 1; i < lineage.size(); ++i) origin.ancestors.push_back(lineage[i].pid);
  return origin;
}

bool is_alive(const ProcessOrigin& origin) {
  const auto stat = stat_of(origin.process);
  return stat && stat->start_time == origin.start_time && !is_dead(*stat);
}

std::vector<pid_t> possible_descendants(const ProcessOrigin& origin) {
  std::map<pid_t, ProcessStat> all;
  for_each_number("/proc", [&](pid_t process) {
    if (const auto stat = stat_of(process)) all.emplace(process, *stat);
  });
  std::vector<pid_t> found;
  for (const auto& [process, stat] : all) {
    if (is_dead(stat) || stat.start_time < origin.start_time) continue;
    auto oldest = all.find(process);
    for (auto above = all.find(stat.parent);
         above != all.end() && above->second.start_time >= origin.start_time &&
         above->first != origin.process;
         above = all.find(above->second.parent)) {
      oldest = above;
    }
    const auto& ancestors = origin.ancestors;
    const pid_t parent = oldest->second.parent;
    if (parent == origin.process ||
        std::find(ancestors.begin(), ancestors.end(), parent) != ancestors.end()) {
      found.push_back(process);
    }
  }
  return found;
}

bool has_open_in(pid_t process, const std::string& directory) {
  const auto is_in_directory = [&](const std::string& path) {
    for (auto at = path.find(directory); at != std::string::npos;
         at = path.find(directory, at + 1)) {
      const std::size_t end = at + directory.size();
      if (end == path.size() || path[end] == '/') return true;
    }
    return false;
  };
  const std::string own = fmt::format("/proc/{}", process);
  if (is_in_directory(link_at(own + "/cwd"))) return true;
  bool found = false;
  for_each_number(own + "/fd", [&](pid_t fd) {
    found = found || is_in_directory(link_at(fmt::format("{}/fd/{}", own, fd)));
  });
  return found;
}

}  // namespace cacheshim
