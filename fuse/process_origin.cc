// SPDX-License-Identifier: Apache-2.0
#include "fuse/process_origin.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <unistd.h>

#include "store/sys.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMostAncestors = 128;

struct Stat {
  pid_t parent = 0;
  std::uint64_t start_time = 0;
  bool is_dead = false;  // a zombie, or about to be gone
};

// Fields 3, 4 and 22 of /proc/PID/stat, counted behind the command's name, which may hold anything.
std::optional<Stat> stat_of(pid_t process) {
  const auto fd = sys::open_path(fmt::format("/proc/{}/stat", process), O_RDONLY);
  const auto text = fd ? sys::read_all(fd->get()) : Result<std::string>(fd.error());
  const auto behind = text ? text->rfind(')') : std::string::npos;
  if (behind == std::string::npos) return std::nullopt;
  std::istringstream fields(text->substr(behind + 1));
  Stat stat;
  std::string state, skipped;
  fields >> state >> stat.parent;
  constexpr int kSkipped = 17;  // 5 to 21
  for (int i = 0; i < kSkipped; ++i) fields >> skipped;
  fields >> stat.start_time;
  if (!fields) return std::nullopt;
  stat.is_dead = state == "Z" || state == "X";
  return stat;
}

std::string link_at(const std::string& path) {
  std::array<char, PATH_MAX> target;
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : std::string();
}

void for_each_number(const std::string& folder, const std::function<void(pid_t)>& function) {
  DIR* const dir = ::opendir(folder.c_str());
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

ProcessOrigin origin_of(pid_t process) {
  ProcessOrigin origin;
  const auto self = process > 0 ? stat_of(process) : std::nullopt;
  if (!self) return origin;
  origin.process = process;
  origin.start_time = self->start_time;
  for (pid_t above = self->parent; above > 0 && origin.ancestors.size() < kMostAncestors;) {
    origin.ancestors.push_back(above);
    const auto stat = stat_of(above);
    above = stat ? stat->parent : 0;
  }
  return origin;
}

bool is_alive(const ProcessOrigin& origin) {
  const auto stat = stat_of(origin.process);
  return stat && stat->start_time == origin.start_time && !stat->is_dead;
}

std::vector<pid_t> possible_descendants(const ProcessOrigin& origin) {
  std::map<pid_t, Stat> all;
  for_each_number("/proc", [&](pid_t process) {
    if (const auto stat = stat_of(process)) all.emplace(process, *stat);
  });
  std::vector<pid_t> found;
  for (const auto& [process, stat] : all) {
    if (stat.is_dead || stat.start_time < origin.start_time) continue;
    auto top = all.find(process);
    for (auto above = all.find(stat.parent);
         above != all.end() && above->second.start_time >= origin.start_time &&
         above->first != origin.process;
         above = all.find(above->second.parent)) {
      top = above;
    }
    const auto& ancestors = origin.ancestors;
    const pid_t parent = top->second.parent;
    if (parent == origin.process ||
        std::find(ancestors.begin(), ancestors.end(), parent) != ancestors.end()) {
      found.push_back(process);
    }
  }
  return found;
}

bool has_open_in(pid_t process, const std::string& folder) {
  const auto is_in_folder = [&](const std::string& path) {
    const auto at = path.find(folder);
    if (at == std::string::npos) return false;
    return at + folder.size() == path.size() || path[at + folder.size()] == '/';
  };
  const std::string own = fmt::format("/proc/{}", process);
  if (is_in_folder(link_at(own + "/cwd"))) return true;
  bool found = false;
  for_each_number(own + "/fd", [&](pid_t fd) {
    found = found || is_in_folder(link_at(fmt::format("{}/fd/{}", own, fd)));
  });
  return found;
}

}  // namespace cacheshim
