// SPDX-License-Identifier: Apache-2.0
#include "store/hidden_paths.h"

#include <utility>
#include <vector>

#include "store/whiteout.h"

namespace cacheshim {
namespace {

std::string marker_path(std::string_view path) {
  return join_path(parent_path(path), whiteout_name(base_name(path)));
}

bool is_within(std::string_view path, std::string_view tree) {
  return path.starts_with(tree) && (path.size() == tree.size() || path[tree.size()] == '/');
}

template <class Set>
std::vector<std::string> take_tree(Set& set, std::string_view tree) {
  std::vector<std::string> taken;
  for (auto it = set.begin(); it != set.end();) {
    if (is_within(*it, tree)) {
      taken.push_back(*it);
      it = set.erase(it);
    } else {
      ++it;
    }
  }
  return taken;
}

template <class Set>
void move_within(Set& set, std::string_view from, std::string_view to) {
  for (const std::string& path : take_tree(set, from)) {
    set.insert(std::string(to) + path.substr(from.size()));
  }
}

}  // namespace

std::string_view parent_path(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view base_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string join_path(std::string_view folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  if (name.empty()) return std::string(folder);
  std::string path;
  path.reserve(folder.size() + 1 + name.size());
  path.append(folder).append(1, '/').append(name);
  return path;
}

void HiddenPaths::add_whiteout(std::string_view path) { whiteouts_.insert(marker_path(path)); }

void HiddenPaths::remove_whiteout(std::string_view path) { whiteouts_.erase(marker_path(path)); }

bool HiddenPaths::has_whiteout(std::string_view path) const {
  return !whiteouts_.empty() && whiteouts_.contains(marker_path(path));
}

void HiddenPaths::remove_opaque(std::string_view path) { opaque_.erase(std::string(path)); }

bool HiddenPaths::hides(std::string_view path) const {
  if (whiteouts_.empty() && opaque_.empty()) return false;
  if (path.empty()) return false;
  if (has_whiteout(path)) return true;
  for (std::string_view folder = parent_path(path);; folder = parent_path(folder)) {
    if (opaque_.contains(folder)) return true;
    if (folder.empty()) return false;
    if (has_whiteout(folder)) return true;
  }
}

void HiddenPaths::move_tree(std::string_view from, std::string_view to) {
  move_within(whiteouts_, from, to);
  move_within(opaque_, from, to);
}

void HiddenPaths::erase_tree(std::string_view path) {
  (void)take_tree(whiteouts_, path);  // dropped with the folder
  (void)take_tree(opaque_, path);
}

void HiddenPaths::clear() {
  whiteouts_.clear();
  opaque_.clear();
}

}  // namespace cacheshim
