// SPDX-License-Identifier: Apache-2.0
#include "store/sys/path_root.h"

#include <climits>

namespace cacheshim {
namespace {

UniqueFd clone_or_nothing(int directory) {
  auto clone = sys::clone_without_symlinks(directory);
  return clone ? *std::move(clone) : UniqueFd();
}

}  // namespace

PathRoot::PathRoot(int directory) : directory_(directory), clone_(clone_or_nothing(directory)) {}

// Whether one system call can resolve `path` without following a symlink. With the clone, a mount
// that follows no symlinks, it can if the path is shorter than PATH_MAX. Without the clone, it can
// only if the path is a single component.
bool PathRoot::is_one_call(const std::string& path) const {
  if (clone_) return path.size() < PATH_MAX;
  return path.find('/') == std::string::npos;
}

Result<struct stat> PathRoot::stat(const std::string& path) const {
  return at(path, [](int dir, const std::string& name) { return sys::stat_at(dir, name); });
}

Status PathRoot::unlink(const std::string& path, int flags) const {
  return at(path,
            [&](int dir, const std::string& name) { return sys::unlink_at(dir, name, flags); });
}

Status PathRoot::rename(const std::string& from, const std::string& to, unsigned flags) const {
  return at(from, [&](int dir, const std::string& name) {
    return at(to, [&](int new_dir, const std::string& new_name) {
      return sys::rename_at(dir, name, new_dir, new_name, flags);
    });
  });
}

Status PathRoot::link(const std::string& path, const std::string& new_path) const {
  return at(path, [&](int dir, const std::string& name) {
    return at(new_path, [&](int new_dir, const std::string& new_name) {
      return sys::link_at(dir, name, new_dir, new_name);
    });
  });
}

}  // namespace cacheshim
