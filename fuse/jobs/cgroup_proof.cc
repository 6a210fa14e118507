// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/cgroup_proof.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>

#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::string_view kJobPrefix = "job_";

// Whether SLURM uses this name: for its directory in a cgroup v1 hierarchy, or for its scope below
// system.slice in a cgroup v2 hierarchy. If several slurmd run on a machine, the names contain the
// node's name: slurm_<node>, <node>_slurmstepd.scope.
bool is_slurm_directory(std::string_view name) {
  return name == "slurm" || name.starts_with("slurm_") || name.ends_with("slurmstepd.scope");
}

bool has_slurm_directory(const std::string& parent) {
  std::error_code failed;
  for (std::filesystem::directory_iterator at(parent, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (is_slurm_directory(at->path().filename().native())) return true;
  }
  return false;
}

bool is_root_directory(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) == -1) return false;
  return S_ISDIR(st.st_mode) && st.st_uid == 0 && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

bool is_job_directory(std::string_view name) {
  if (!name.starts_with(kJobPrefix) || name.size() == kJobPrefix.size()) return false;
  name.remove_prefix(kJobPrefix.size());
  return name.find_first_not_of("0123456789") == name.npos;
}

// Returns the path up to the first directory of a job, including that directory; nothing if there
// is none.
std::optional<std::string_view> path_of_job(std::string_view path) {
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::string_view name = take_component(rest);
    if (name == "..") return std::nullopt;  // outside the visible part of the tree
    if (is_job_directory(name)) {
      return path.substr(0, static_cast<std::size_t>(name.data() + name.size() - path.data()));
    }
  }
  return std::nullopt;
}

// Returns true if `options` include all of `wanted`. `options`: the super block's options of a
// mounted cgroup v1 hierarchy. `wanted`: the controllers, or the name, by which /proc/PID/cgroup
// identifies a hierarchy.
bool names_controllers(std::string_view options, std::string_view wanted) {
  std::size_t found = 0;
  std::size_t count = 0;
  for (std::string_view rest = wanted; !rest.empty(); ++count) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    for (std::string_view all = options; !all.empty();) {
      const std::string_view option = all.substr(0, all.find(','));
      all.remove_prefix(std::min(all.size(), option.size() + 1));
      if (option == one) ++found;
    }
  }
  return count > 0 && found == count;
}

}  // namespace

// A line of mountinfo: "36 35 0:30 ROOT MOUNT_POINT OPTIONS [FIELD…] - TYPE SOURCE SUPER_OPTIONS"
CgroupProof::CgroupProof(std::string_view mountinfo) {
  while (!mountinfo.empty()) {
    const std::string line(take_line(mountinfo));
    const auto dash = line.find(" - ");
    if (dash == line.npos) continue;
    std::istringstream front(line);
    std::array<std::string, 5> fields;
    for (std::string& field : fields) front >> field;
    std::istringstream back(line.substr(dash + 3));
    std::string type, source, options;
    back >> type >> source >> options;
    if (type != "cgroup" && type != "cgroup2") continue;
    trees_.push_back({type == "cgroup" ? options : "", fields[3], fields[4]});
  }
}

CgroupProof CgroupProof::of_this_process() {
  const auto file = sys::open_path("/proc/self/mountinfo", O_RDONLY);
  const auto text = file ? sys::read_all(file->get()) : file.error();
  return CgroupProof(text ? *text : std::string());
}

bool CgroupProof::has_slurm() const {
  return std::any_of(trees_.begin(), trees_.end(), [](const Tree& tree) {
    const std::string& top = tree.mount_point;
    return is_root_directory(top) &&
           (has_slurm_directory(top) || has_slurm_directory(top + "/system.slice"));
  });
}

bool CgroupProof::is_roots_own(std::string_view controllers, std::string_view path) const {
  return std::any_of(trees_.begin(), trees_.end(), [&](const Tree& tree) {
    const bool is_this = controllers.empty() ? tree.controllers.empty()
                                             : names_controllers(tree.controllers, controllers);
    std::string_view below = path;
    if (!is_this) return false;
    if (tree.root != "/") {  // only a part of the hierarchy is mounted there
      if (!below.starts_with(tree.root)) return false;
      below.remove_prefix(tree.root.size());
      if (!below.starts_with('/')) return false;
    }
    std::string directory = tree.mount_point;
    if (!is_root_directory(directory)) return false;
    while (!below.empty()) {
      const std::string_view name = take_component(below);
      if (name.empty()) continue;
      directory.append("/").append(name);
      if (!is_root_directory(directory)) return false;
    }
    return true;
  });
}

// Lines of `cgroup_text`: "4:memory:/slurm/uid_1000/job_4711/step_0", "0::/system.slice/slurmstepd.scope/job_4711/…"
JobId CgroupProof::job_of(std::string_view cgroup_text) const {
  while (!cgroup_text.empty()) {
    const std::string_view line = take_line(cgroup_text);
    const auto first = line.find(':');
    const auto second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view path = line.substr(second + 1);
    const auto job = path_of_job(path);
    if (!job || !is_roots_own(line.substr(first + 1, second - first - 1), *job)) continue;
    return JobId::from_text(base_name(*job).substr(kJobPrefix.size()));
  }
  return {};
}

}  // namespace cacheshim
