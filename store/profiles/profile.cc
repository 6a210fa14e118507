// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/profile.h"

#include <algorithm>
#include <optional>

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_name(pattern, name); });
}

bool is_for_names(const PathPattern& pattern) {
  return pattern.text().find('/') == std::string::npos;
}

// Whether the pattern matches the whole `path`, whose last component is `name`.
bool matches_path(const PathPattern& pattern, std::string_view path, std::string_view name) {
  return is_for_names(pattern) ? matches_name(pattern.text(), name) : pattern.matches(path);
}

// Whether the pattern matches `path` or a directory that contains it.
bool matches_path_or_parent(const PathPattern& pattern, std::string_view path) {
  if (!is_for_names(pattern)) return pattern.match_front(path).has_value();
  while (!path.empty()) {
    if (matches_name(pattern.text(), take_component(path))) return true;
  }
  return false;
}

constexpr std::string_view kBesideEntry = "./";

// Returns the part of `path` that the '*' of `pattern` matches. Requires: `pattern` has one '*'.
std::optional<std::string_view> match_star(std::string_view pattern, std::string_view path) {
  const std::string_view front = pattern.substr(0, pattern.find('*'));
  const std::string_view back = pattern.substr(front.size() + 1);
  if (path.size() < front.size() + back.size()) return std::nullopt;
  if (!path.starts_with(front) || !path.ends_with(back)) return std::nullopt;
  return path.substr(front.size(), path.size() - front.size() - back.size());
}

// Removes the last `count` components from `path` and returns them; nothing if `path` has fewer.
std::optional<std::string_view> take_last(std::string_view& path, std::ptrdiff_t count) {
  const std::string_view whole = path;
  for (; count > 0; --count) {
    if (path.empty()) return std::nullopt;
    path = parent_path(path);
  }
  return whole.substr(path.empty() ? 0 : path.size() + 1);
}

}  // namespace

std::string_view to_string(Evidence evidence) {
  switch (evidence) {
    case Evidence::kGuess:
      return "guess";
    case Evidence::kDoc:
      return "doc";
    case Evidence::kRead:
      return "read";
    case Evidence::kRun:
      return "run";
  }
  return "";
}

bool EntryRule::completes(std::string_view file_name) const {
  return matches_any(complete, file_name);
}

bool EntryRule::completes_alone(std::string_view file_name) const {
  return matches_any(complete_single, file_name);
}

bool EntryRule::completes_at_end(std::string_view file_name) const {
  return matches_any(complete_at_end, file_name);
}

bool EntryRule::holds_paths(std::string_view file_name) const {
  return matches_any(paths_in, file_name);
}

bool EntryRule::is_built_under(std::string_view lock_file, std::string_view entry) const {
  if (built_under.empty()) return false;
  std::string_view pattern = built_under;
  if (pattern.starts_with(kBesideEntry)) {
    pattern.remove_prefix(kBesideEntry.size());
    const std::string_view directory = parent_path(entry);
    if (!directory.empty() && !lock_file.starts_with(std::string(directory) + '/')) return false;
    if (!directory.empty()) lock_file.remove_prefix(directory.size() + 1);
  }
  const auto key = match_star(pattern, lock_file);
  const std::string_view name = base_name(entry);
  if (!key) return false;
  if (is_directory()) return *key == name;
  return name.starts_with(*key) && (name.size() == key->size() || name[key->size()] == '.');
}

std::string EntryRule::entry_built_under(std::string_view lock_file) const {
  if (!is_directory() || !built_under.starts_with(kBesideEntry)) return "";
  const std::string_view pattern = std::string_view(built_under).substr(kBesideEntry.size());
  std::string_view directory = lock_file;
  const auto rest = take_last(directory, std::count(pattern.begin(), pattern.end(), '/') + 1);
  const auto name = rest ? match_star(pattern, *rest) : std::nullopt;
  if (!name || name->empty() || name->find('/') != name->npos) return "";
  return join_path(directory, *name);
}

bool Profile::has(NameClass wanted) const {
  return std::any_of(classes.begin(), classes.end(),
                     [&](const auto& known) { return known.first == wanted; });
}

bool Profile::is_of(std::string_view path, NameClass wanted) const {
  const std::string_view file_name = path.substr(path.rfind('/') + 1);
  return std::any_of(classes.begin(), classes.end(),
                     [&](const auto& known) {
                       return known.first == wanted && matches_path(known.second, path, file_name);
                     }) &&
         class_of(path) == wanted;
}

NameClass Profile::class_of(std::string_view path) const {
  for (const auto& [name_class, pattern] : classes) {
    // If the class also covers everything below its names (scratch), the pattern may match a
    // directory above `path`; otherwise it must match `path` itself.
    const NameClassRow& row = row_of(name_class);
    const bool matches = row.covers_below
                             ? matches_path_or_parent(pattern, path)
                             : matches_path(pattern, path, path.substr(path.rfind('/') + 1));
    if (!matches) continue;
    const bool is_off = row.needs_evidence && !may_publish_early();
    return is_off ? NameClass::kPrivate : name_class;
  }
  return NameClass::kPrivate;
}

}  // namespace cacheshim
