// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/router.h"

#include <cstring>

#include "common/names.h"

namespace cacheshim {
namespace {

std::string_view rest_from(std::string_view text, std::size_t at) {
  return {text.data() + at, text.size() - at};
}

// Returns the length of the parent directory's path without a '/' at the end; 0 for the parent of
// "/x".
std::size_t parent_length(std::string_view path) {
  std::size_t length = path.size();
  while (length > 0 && path.data()[--length] != '/') {
  }
  return length;
}

}  // namespace

std::size_t join_path(PathBuffer& out, std::initializer_list<std::string_view> parts) {
  std::size_t length = 0;
  for (const std::string_view part : parts) {
    if (part.size() >= sizeof out.text - length) return 0;
    if (!part.empty()) std::memcpy(out.text + length, part.data(), part.size());
    length += part.size();
  }
  out.text[length] = '\0';
  return length;
}

void Router::open() {
  gate_.add_absolute(routes_.mount().data()[1]);
  gate_.add_absolute('/');  // for "//ci-cache"
  gate_.add_absolute('.');  // for "/./ci-cache"
  gate_.add_relative('.');  // for "../x" and "./x"
  for (std::size_t i = 0; i < routes_.size(); ++i) {
    if (!routes_[i].is_routed) continue;
    std::string_view rest = routes_[i].default_path;
    gate_.add_absolute(rest.data()[1]);
    for (;;) {
      const std::string_view component = take_next_component(rest);
      if (component.empty()) break;
      gate_.add_relative(*component.data());
    }
  }
  gate_.open();
}

// Verifies the match of a path that contains "..": a component before the ".." may be a symlink, and then the kernel
// resolves the path differently.
bool Router::confirm(std::string_view path, std::string_view prefix, const PathMatch& match,
                     SameDirectory same_directory) const {
  if (match.head == 0) return true;
  PathBuffer head;
  PathBuffer directory;
  const std::string_view same =
      match.same_as == 0 ? "/" : std::string_view(prefix.data(), match.same_as);
  return join_path(head, {{path.data(), match.head}}) != 0 && join_path(directory, {same}) != 0 &&
         same_directory(head.text, directory.text);
}

// Matches a path under the mount. MOUNT/NAME/.. means MOUNT, wherever the symlink MOUNT/NAME leads.
Router::Found Router::find_in_mount(std::string_view path, SameDirectory same_directory) const {
  Found found;
  PathMatch match = match_prefix(path, routes_.mount());
  const bool ours = match.matched || match.left != 0;
  if (!ours || !confirm(path, routes_.mount(), match, same_directory)) return found;
  std::string_view rest = rest_from(path, match.rest);
  const bool own = is_own_name(rest);
  const bool climbs = take_next_component(rest) == "..";
  if (!own && !climbs) {
    found.name = path.size() - rest.size();
    const PathMatch below = match_rest(path, found.name);
    match.matched = below.matched;
    match.left = below.left;
    match.inside = below.inside;
  } else {
    match.left = 0;  // the kernel resolves the ".."
  }
  found.match = match;
  return found;
}

// Finds the longest default path that contains the path; of several with this length, the last one.
// A match of the mount takes precedence over all default paths.
Router::Found Router::find(std::string_view path, SameDirectory same_directory) const {
  const bool plain = is_plain_path(path);
  Found found;
  if (!plain || starts_with_directory(path, routes_.mount())) {
    found = find_in_mount(path, same_directory);
    if (found.match.matched || found.match.left != 0) return found;
  }
  for (std::size_t i = 0; i < routes_.size(); ++i) {
    const Route& route = routes_[i];
    if (!route.is_routed || (plain && !starts_with_directory(path, route.default_path))) continue;
    const bool longer = found.route == kNoRoute ||
                        route.default_path.size() >= routes_[found.route].default_path.size();
    const PathMatch match = match_prefix(path, route.default_path);
    const bool ours = match.matched || match.left != 0;
    if (!longer || !ours || !confirm(path, route.default_path, match, same_directory)) continue;
    found = {match, i};
  }
  return found;
}

// Whether `rest`, a path relative to the mount, is the mount's root, or begins with one of
// cacheshim's own names.
bool Router::is_own_name(std::string_view rest) {
  const std::string_view name = take_next_component(rest);
  return name.empty() || name == kJobsName || name == kControlName;
}

// Whether a path that seems to leave view/NAME by ".." really leaves it. If a component before the
// ".." is a symlink, the kernel must resolve the path.
bool Router::leaves(std::string_view path, const Found& found, std::string_view name,
                    SameDirectory same_directory) const {
  const std::size_t begin = found.route == kNoRoute ? found.name : found.match.rest;
  if (begin == found.match.inside) return true;
  PathBuffer directory;
  PathBuffer climbed;
  const std::string_view way(path.data() + begin, found.match.inside - begin);
  return join_path(directory, {routes_.view(), "/", name}) != 0 &&
         join_path(climbed, {routes_.view(), "/", name, way}) != 0 &&
         same_directory(climbed.text, directory.text);
}

// Routes DEFAULT/.. to DEFAULT's parent directory, even if DEFAULT exists only in the view. The
// rest of the path may lead into a route again.
RoutedPath Router::route_parent(std::string_view path, const Found& found, PathBuffer& out,
                                SameDirectory same_directory, int turns) const {
  std::string_view parent = routes_.mount();
  if (found.route != kNoRoute) {
    const std::string_view from = routes_[found.route].default_path;
    parent = {from.data(), parent_length(from)};
  }
  PathBuffer shorter;
  RoutedPath result;
  result.path = path.data();
  std::string_view rest = rest_from(path, found.match.left);
  for (;;) {
    const std::string_view root = parent.empty() && rest.empty() ? "/" : "";
    if (turns == 0 || join_path(shorter, {parent, root, rest}) == 0) return result;
    std::string_view further = rest;
    PathBuffer directory;
    // The kernel cannot resolve ".." in a directory that does not exist. So resolve it as text.
    if (take_next_component(further) != ".." || join_path(directory, {parent, "/"}) == 0 ||
        same_directory(directory.text, directory.text)) {
      break;
    }
    parent = {parent.data(), parent_length(parent)};
    rest = further;
  }
  result = route(shorter.text, out, same_directory, turns - 1);
  result.from_length = 0;  // no prefix was replaced
  if (result.path != shorter.text) return result;
  result.path = out.text;
  std::memcpy(out.text, shorter.text, std::strlen(shorter.text) + 1);
  return result;
}

RoutedPath Router::route(const char* path, PathBuffer& out, SameDirectory same_directory,
                         int turns) const {
  const std::string_view text(path);
  const Found found = find(text, same_directory);
  if (found.match.left != 0) {
    std::string_view name;
    if (found.route == kNoRoute) {
      std::string_view rest = rest_from(text, found.match.rest);
      name = take_next_component(rest);
    } else {
      name = routes_[found.route].name;
    }
    if (leaves(text, found, name, same_directory)) {
      return route_parent(text, found, out, same_directory, turns);
    }
  } else if (!found.match.matched) {
    RoutedPath foreign;
    foreign.path = path;
    return foreign;
  }
  return rewrite(text, found, out);
}

RoutedPath Router::rewrite(std::string_view path, const Found& found, PathBuffer& out) const {
  RoutedPath result;
  result.path = path.data();
  const std::string_view rest = rest_from(path, found.match.rest);
  std::string_view slash;
  std::string_view name;
  if (found.route == kNoRoute) {
    result.kind = RoutedPath::Kind::kUnchanged;
    std::string_view below = rest;
    result.names_view = take_next_component(below) == kJobsName;
    if (!routes_.has_job() || is_own_name(rest)) return result;
  } else {
    slash = "/";
    name = routes_[found.route].name;
    result.route = found.route;
  }
  if (join_path(out, {routes_.view(), slash, name, rest}) == 0) return result;
  result.kind = RoutedPath::Kind::kRewritten;
  result.path = out.text;
  result.from_length = found.match.rest;
  result.to_length = routes_.view().size() + slash.size() + name.size();
  return result;
}

Router::Place Router::find_place(const char* path, SameDirectory same_directory) const {
  const std::string_view text(path);
  if (routes_.mount().empty() || !starts_with_directory(text, routes_.mount())) return {};
  std::string_view rest = rest_from(text, routes_.mount().size());
  std::string_view name = take_next_component(rest);
  if (name == kControlName) return {};
  if (name == kJobsName) {
    (void)take_next_component(rest);
    const std::string_view view(text.data(), text.size() - rest.size());
    name = take_next_component(rest);
    if (!routes_.has_job() || view != routes_.view()) {  // the job's name may be a symlink to this view
      PathBuffer given;
      PathBuffer own;
      if (name.empty() || join_path(given, {view, "/", name}) == 0 ||
          join_path(own, {routes_.view(), "/", name}) == 0 ||
          !same_directory(given.text, own.text)) {
        return {};
      }
    }
  }
  return {name, text.size() - rest.size()};
}

const char* Router::restore(const char* path, const Place& place, std::size_t route,
                            PathBuffer& out) const {
  const std::string_view rest = rest_from(path, place.rest);
  const bool of_default = route != kNoRoute && routes_[route].name == place.name;
  const std::size_t length = of_default ? join_path(out, {routes_[route].default_path, rest})
                                        : join_path(out, {routes_.mount(), "/", place.name, rest});
  return length == 0 ? path : out.text;
}

Router::Relative Router::match_relative(const char* path, std::size_t candidate) const {
  const std::string_view text(path);
  for (std::size_t i = 0; i < routes_.size(); ++i) {
    if (!routes_[i].is_routed) continue;
    const std::string_view from = routes_[i].default_path;
    for (std::size_t slash = 1; slash < from.size(); ++slash) {
      if (from.data()[slash] != '/') continue;
      // Matches as if the path were absolute below the directory from[0, slash).
      const PathMatch match = match_prefix(text, rest_from(from, slash));
      if (!match.matched || match.head != 0) continue;
      if (candidate-- == 0) return {i, slash, match.rest};
    }
  }
  return {};
}

RoutedPath Router::complete_relative(const char* path, const Relative& match,
                                     PathBuffer& out) const {
  RoutedPath result;
  result.path = path;
  const std::string_view name = routes_[match.route].name;
  if (join_path(out, {routes_.view(), "/", name, rest_from(path, match.rest)}) == 0) return result;
  result.kind = RoutedPath::Kind::kRewritten;
  result.path = out.text;
  result.from_length = match.rest;
  result.to_length = routes_.view().size() + 1 + name.size();
  result.route = match.route;
  return result;
}

void Router::leave_view(RoutedPath& routed, PathBuffer& out) const {
  if (!routes_.has_job() || routed.kind != RoutedPath::Kind::kRewritten) return;
  if (routed.path != out.text || !starts_with_directory(out.text, routes_.view())) return;
  const std::string_view rest = rest_from(out.text, routes_.view().size());
  std::string_view below = rest;
  (void)take_next_component(below);
  if (take_next_component(below).empty()) return;
  const std::size_t taken = routes_.view().size() - routes_.mount().size();
  if (routed.to_length >= routes_.view().size()) routed.to_length -= taken;
  std::memmove(out.text + routes_.mount().size(), rest.data(), rest.size() + 1);
}

RoutedPath Router::fall_back(const char* path, PathBuffer& out,
                             SameDirectory same_directory) const {
  const std::string_view text(path);
  const Found found = find(text, same_directory);
  RoutedPath result;
  result.path = path;
  if (!found.match.matched) return result;
  result.route = found.route;
  if (found.route != kNoRoute) {
    result.kind = RoutedPath::Kind::kUnchanged;
    return result;
  }
  std::string_view rest = rest_from(text, found.match.rest);
  std::string_view name = take_next_component(rest);
  if (name == kJobsName) {
    (void)take_next_component(rest);  // skip the job
    name = take_next_component(rest);
  }
  result.route = routes_.find(name);
  if (result.route == kNoRoute) return result;
  const std::string_view to = routes_[result.route].default_path;
  if (join_path(out, {to, rest}) == 0) return result;
  result.kind = RoutedPath::Kind::kRewritten;
  result.path = out.text;
  result.from_length = text.size() - rest.size();
  result.to_length = to.size();
  return result;
}

}  // namespace cacheshim
