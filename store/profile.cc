// SPDX-License-Identifier: Apache-2.0
#include "store/profile.h"

#include <algorithm>

namespace cacheshim {
namespace {

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_name(pattern, name); });
}

bool is_for_names(const PathPattern& pattern) {
  return pattern.text().find('/') == std::string::npos;
}

// Whether the pattern means `path` itself, whose last component is `name`.
bool means(const PathPattern& pattern, std::string_view path, std::string_view name) {
  return is_for_names(pattern) ? matches_name(pattern.text(), name) : pattern.matches(path);
}

}  // namespace

std::string_view to_string(NameClass name_class) {
  switch (name_class) {
    case NameClass::kPrivate:
      return "private";
    case NameClass::kScratch:
      return "scratch";
    case NameClass::kLock:
      return "lock";
    case NameClass::kBaton:
      return "baton";
    case NameClass::kShared:
      return "shared";
    case NameClass::kFlight:
      return "flight";
  }
  return "";
}

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

bool EntryRule::is_built_under(std::string_view lock_file, std::string_view entry_name) const {
  const std::string_view pattern = built_under;
  const std::size_t star = pattern.find('*');
  if (star == pattern.npos || lock_file.size() < pattern.size()) return false;
  const std::string_view front = pattern.substr(0, star);
  const std::string_view back = pattern.substr(star + 1);
  if (!lock_file.starts_with(front) || !lock_file.ends_with(back)) return false;
  const std::string_view key =
      lock_file.substr(star, lock_file.size() - front.size() - back.size());
  return entry_name.starts_with(key) &&
         (entry_name.size() == key.size() || entry_name[key.size()] == '.');
}

bool Profile::has(NameClass wanted) const {
  return std::any_of(classes.begin(), classes.end(),
                     [&](const auto& known) { return known.first == wanted; });
}

bool Profile::is_of(std::string_view path, NameClass wanted) const {
  const std::string_view file_name = path.substr(path.rfind('/') + 1);
  return std::any_of(classes.begin(), classes.end(),
                     [&](const auto& known) {
                       return known.first == wanted && means(known.second, path, file_name);
                     }) &&
         class_of(path) == wanted;
}

NameClass Profile::class_of(std::string_view path) const {
  for (const auto& [name_class, pattern] : classes) {
    // A scratch folder's names are scratch as well.
    std::size_t end = name_class == NameClass::kScratch ? 0 : path.size();
    std::size_t begin = name_class == NameClass::kScratch ? 0 : path.rfind('/') + 1;
    while (begin < path.size()) {
      end = std::min(path.find('/', begin), path.size());
      if (means(pattern, path.substr(0, end), path.substr(begin, end - begin))) {
        const bool needs_trust =
            name_class == NameClass::kFlight || name_class == NameClass::kShared;
        const bool is_off = needs_trust && !may_publish_early();
        return is_off ? NameClass::kPrivate : name_class;
      }
      begin = end + 1;
    }
  }
  return NameClass::kPrivate;
}

}  // namespace cacheshim
