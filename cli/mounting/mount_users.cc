// SPDX-License-Identifier: Apache-2.0
#include "cli/mounting/mount_users.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "common/names.h"

namespace cacheshim::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNamedUsers = 4;

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec == std::errc() && pid != ::getpid()) pids.push_back(pid);
  }
  return pids;
}

std::string proc_path(pid_t pid, std::string_view name) {
  return fmt::format("/proc/{}/{}", pid, name);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string name_of(pid_t pid) {
  std::string name = read_text(proc_path(pid, "comm"));
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

// Whether a link in /proc leads into the mount. With AT_STATX_DONT_SYNC, the kernel sends no request
// to the daemon.
bool leads_into(const std::string& link, const MountEntry& mount) {
  struct statx status {};
  if (::statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC, STATX_MNT_ID, &status) != 0) return false;
  return (status.stx_mask & STATX_MNT_ID) != 0 && status.stx_mnt_id == mount.id;
}

bool is_control_file(const fs::path& link, const MountEntry& mount) {
  std::error_code error;
  const std::string target = fs::read_symlink(link, error);
  const std::string directory = mount.path + "/" + std::string(kControlName);
  return target == directory || target.starts_with(directory + "/");
}

enum class Files { kNone, kControl, kOthers };

Files open_files(pid_t pid, const MountEntry& mount) {
  Files found = Files::kNone;
  std::error_code error;
  for (fs::directory_iterator at(proc_path(pid, "fd"), error), end; !error && at != end;
       at.increment(error)) {
    if (!leads_into(at->path(), mount)) continue;
    if (!is_control_file(at->path(), mount)) return Files::kOthers;
    found = Files::kControl;
  }
  return found;
}

// Whether the process maps a file of the mount. /proc/PID/maps shows the device as hexadecimal major:minor.
bool has_mapping(pid_t pid, const MountEntry& mount) {
  unsigned major = 0;
  unsigned minor = 0;
  if (std::sscanf(mount.device.c_str(), "%u:%u", &major, &minor) != 2) return false;
  const std::string device = fmt::format(" {:02x}:{:02x} ", major, minor);
  return read_text(proc_path(pid, "maps")).find(device) != std::string::npos;
}

constexpr std::string_view kRequest = "request to its daemon";

// Returns how the process uses the mount; empty if it does not.
std::string_view find_use(pid_t pid, const MountEntry& mount) {
  if (leads_into(proc_path(pid, "cwd"), mount)) return "current directory";
  if (leads_into(proc_path(pid, "root"), mount)) return "root directory";
  const Files files = open_files(pid, mount);
  if (files == Files::kOthers) return "open file";
  if (has_mapping(pid, mount)) return "mapped file";
  return files == Files::kControl ? kRequest : "";
}

std::string mount_namespace(std::string_view pid) {
  std::error_code error;
  return fs::read_symlink(fmt::format("/proc/{}/ns/mnt", pid), error);
}

}  // namespace

std::vector<MountUser> find_mount_users(const MountEntry& mount) {
  std::vector<MountUser> users;
  for (const pid_t pid : all_processes()) {
    const std::string_view how = find_use(pid, mount);
    if (how.empty()) continue;
    users.push_back({pid, name_of(pid), std::string(how), /*is_client=*/how == kRequest});
  }
  return users;
}

std::vector<MountUser> find_other_namespaces(const MountEntry& mount) {
  std::set<std::string> seen = {mount_namespace("self"), ""};
  std::vector<MountUser> users;
  for (const pid_t pid : all_processes()) {
    if (!seen.insert(mount_namespace(std::to_string(pid))).second) continue;
    for (const MountEntry& other : parse_mount_info(read_text(proc_path(pid, "mountinfo")))) {
      if (other.device != mount.device) continue;
      users.push_back({pid, name_of(pid), "mount namespace", /*is_client=*/false});
      break;
    }
  }
  return users;
}

std::string describe_users(const std::vector<MountUser>& users) {
  std::string text;
  for (std::size_t i = 0; i < users.size() && i < kNamedUsers; ++i) {
    const MountUser& user = users[i];
    text += fmt::format("{}{} (pid {}, {})", i == 0 ? "" : ", ", user.name, user.pid, user.how);
  }
  if (users.size() > kNamedUsers) text += fmt::format(" and {} more", users.size() - kNamedUsers);
  return text;
}

std::vector<MountUser> processes_of_this_namespace() {
  const std::string own = mount_namespace("self");
  std::vector<MountUser> found;
  for (const pid_t pid : all_processes()) {
    if (mount_namespace(std::to_string(pid)) == own)
      found.push_back({pid, name_of(pid), "running", /*is_client=*/false});
  }
  return found;
}

}  // namespace cacheshim::cli
