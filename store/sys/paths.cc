// SPDX-License-Identifier: Apache-2.0
#include "store/sys/paths.h"

#include <algorithm>

namespace cacheshim {

std::string_view parent_path(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view base_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  if (name.empty()) return std::string(directory);
  std::string path;
  path.reserve(directory.size() + 1 + name.size());
  path.append(directory).append(1, '/').append(name);
  return path;
}

bool is_at_or_below(std::string_view path, std::string_view top) {
  return path.starts_with(top) &&
         (top.empty() || path.size() == top.size() || path[top.size()] == '/');
}

bool is_too_deep_for_base(std::string_view path) {
  if (path.size() > kMostBasePathBytes) return true;
  return static_cast<std::size_t>(std::count(path.begin(), path.end(), '/')) >= kMostBaseDepth;
}

}  // namespace cacheshim
