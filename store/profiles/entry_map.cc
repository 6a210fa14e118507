// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/entry_map.h"

#include <algorithm>

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

// Returns the length of the leading part of `path` that names an entry of this rule; `path` is
// relative to the cache's directory.
std::optional<std::size_t> match(const EntryRule& rule, std::string_view path) {
  if (rule.is_directory()) return rule.path.match_front(path);
  if (!rule.path.matches(path)) return std::nullopt;
  for (const std::string& ending : rule.files) {
    if (path.ends_with(ending)) return path.size() - ending.size();
  }
  return std::nullopt;
}

}  // namespace

std::string EntryRef::unit() const {
  std::string path(entry);
  if (!rule->is_directory()) path += rule->files.front();
  return path;
}

std::vector<std::string> EntryRef::file_paths() const {
  std::vector<std::string> paths;
  for (const std::string& ending : rule->files) paths.push_back(std::string(entry) + ending);
  return paths;
}

const Profile* EntryMap::find_profile(std::string_view name) const {
  for (const Profile& profile : profiles_) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::optional<EntryRef> EntryMap::find(std::string_view path) const {
  std::string_view below = path;
  const Profile* profile = find_profile(take_component(below));
  if (profile == nullptr || below.empty()) return std::nullopt;
  for (const EntryRule& rule : profile->entries) {
    const auto length = match(rule, below);
    if (!length) continue;
    const std::size_t end = path.size() - below.size() + *length;
    EntryRef ref{profile, &rule, path.substr(0, end), path.substr(end)};
    if (rule.is_directory() && !ref.rest.empty()) ref.rest.remove_prefix(1);  // removes the '/'
    return ref;
  }
  return std::nullopt;
}

NameClass EntryMap::class_of(std::string_view path) const {
  const Profile* profile = find_profile(take_component(path));
  return profile == nullptr ? NameClass::kPrivate : profile->class_of(path);
}

bool EntryMap::is_lock(std::string_view path) const {
  const Profile* profile = find_profile(take_component(path));
  return profile != nullptr && profile->is_of(path, NameClass::kLock);
}

std::string EntryMap::entry_built_under(std::string_view lock_file) const {
  std::string_view below = lock_file;
  const Profile* profile = find_profile(take_component(below));
  if (profile == nullptr) return "";
  for (const EntryRule& rule : profile->entries) {
    const std::string entry = rule.entry_built_under(below);
    if (entry.empty()) continue;
    std::string path = join_path(profile->name, entry);
    const auto ref = find(path);
    if (ref && ref->rule == &rule && ref->is_entry_directory()) return path;
  }
  return "";
}

bool EntryMap::may_become_lock(std::string_view path) const {
  const Profile* profile = find_profile(take_component(path));
  return profile == nullptr ? path.ends_with(".lock") : profile->is_of(path, NameClass::kBaton);
}

bool EntryMap::is_common(std::string_view path) const {
  const Profile* profile = find_profile(take_component(path));
  return profile != nullptr &&
         std::any_of(kNameClasses.begin(), kNameClasses.end(), [&](const NameClassRow& row) {
           return row.is_common && profile->is_of(path, row.name_class);
         });
}

bool EntryMap::has_common(std::string_view path) const {
  const Profile* profile = find_profile(take_component(path));
  return profile != nullptr &&
         std::any_of(kNameClasses.begin(), kNameClasses.end(), [&](const NameClassRow& row) {
           return row.is_common && profile->has(row.name_class);
         });
}

bool EntryMap::is_beside_entry(std::string_view path) const {
  return !row_of(class_of(path)).never_published.empty();
}

}  // namespace cacheshim
