// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/path_pattern.h"

#include <fnmatch.h>

#include <climits>
#include <cstring>

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

constexpr std::string_view kAnyDepth = "**";

}  // namespace

bool matches_name(const std::string& pattern, std::string_view name) {
  char text[NAME_MAX + 1];
  if (name.size() > NAME_MAX) return false;
  text[name.copy(text, name.size())] = '\0';
  return ::fnmatch(pattern.c_str(), text, 0) == 0;
}

bool PathPattern::is_valid(std::string_view text) {
  return !text.empty() && text.front() != '/' && text.back() != '/' && text.find("//") == text.npos;
}

PathPattern::PathPattern(std::string_view text) : text_(text) {
  while (!text.empty()) parts_.emplace_back(take_component(text));
}

bool PathPattern::matches_from(std::size_t part, std::string_view path) const {
  for (; part < parts_.size(); ++part) {
    if (parts_[part] == kAnyDepth) {
      if (matches_from(part + 1, path)) return true;
      if (path.empty()) return false;
      (void)take_component(path);
      --part;  // the same "**" again, one component further
      continue;
    }
    if (path.empty() || !matches_name(parts_[part], take_component(path))) return false;
  }
  return path.empty();
}

bool PathPattern::matches(std::string_view path) const { return matches_from(0, path); }

std::optional<std::size_t> PathPattern::match_front(std::string_view path) const {
  for (std::size_t end = 0; end < path.size();) {
    end = std::min(path.find('/', end + 1), path.size());
    if (matches(path.substr(0, end))) return end;
  }
  return std::nullopt;
}

}  // namespace cacheshim
