// SPDX-License-Identifier: Apache-2.0
#include "cli/cache_path.h"

#include <filesystem>
#include <system_error>

#include "cli/paths.h"
#include "common/names.h"
#include "store/sys/paths.h"

namespace cacheshim::cli {
namespace {

// Returns the part of `path` below `directory`; nothing if `path` is not below it.
std::optional<std::string> below(const std::string& path, const std::string& directory) {
  if (directory.empty() || directory == "/" || !path.starts_with(directory + "/"))
    return std::nullopt;
  return path.substr(directory.size() + 1);
}

std::string absolute(const std::string& text) {
  std::error_code error;
  const auto path = std::filesystem::absolute(text, error).lexically_normal();
  return path.has_filename() ? path.string() : path.parent_path().string();
}

CachePath in_mount(const std::string& rest) {
  std::string_view path = rest;
  if (take_component(path) != kJobsName) return {rest, ""};
  const std::string_view view = take_component(path);  // "job", or "job@uid"
  return {std::string(path), std::string(view.substr(0, view.find('@')))};
}

}  // namespace

std::string expand_home(const std::string& path) {
  if (!path.starts_with("~/")) return path;
  const auto home = find_variable("HOME");
  return home ? *home + path.substr(1) : "";
}

std::optional<CachePath> find_cache_path(const std::string& text, const std::string& mount,
                                         const std::string& store,
                                         const std::vector<Profile>& profiles) {
  const std::string path = absolute(text);
  if (const auto rest = below(path, absolute(mount))) return in_mount(*rest);
  if (const auto rest = below(path, store)) return CachePath{*rest, ""};
  for (const Profile& profile : profiles) {
    for (const std::string& directory : profile.default_paths) {
      if (const auto rest = below(path, expand_home(directory))) {
        return CachePath{join_path(profile.name, *rest), ""};
      }
    }
  }
  if (text.empty() || text.front() == '/') return std::nullopt;
  return CachePath{std::filesystem::path(text).lexically_normal().string(), ""};
}

}  // namespace cacheshim::cli
