// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/path_pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

constexpr std::string_view kDoubleStar = "**";

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
  const auto slashes = static_cast<std::size_t>(std::count(text.begin(), text.end(), '/'));
  if (slashes >= kMostParts) {
    parts_.emplace_back("/");  // matches no component of a path
    return;
  }
  while (!text.empty()) {
    const std::string_view part = take_component(text);
    if (part == kDoubleStar) any_depth_ |= Parts{1} << parts_.size();
    parts_.emplace_back(part);
  }
}

// Adds the parts that may come next because a "**" before them matches no component.
PathPattern::Parts PathPattern::with_skipped(Parts next) const {
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const Parts bit = Parts{1} << part;
    if ((next & any_depth_ & bit) != 0) next |= bit << 1U;
  }
  return next;
}

PathPattern::Parts PathPattern::step(Parts next, std::string_view name) const {
  Parts after = next & any_depth_;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const Parts bit = Parts{1} << part;
    if ((next & ~any_depth_ & bit) == 0) continue;
    if (matches_name(parts_[part], name)) after |= bit << 1U;
  }
  return any_depth_ == 0 ? after : with_skipped(after);
}

bool PathPattern::matches(std::string_view path) const {
  Parts next = with_skipped(1);
  while (!path.empty() && next != 0) next = step(next, take_component(path));
  return path.empty() && is_over(next);
}

std::optional<std::size_t> PathPattern::match_front(std::string_view path) const {
  Parts next = with_skipped(1);
  for (std::size_t begin = 0; begin < path.size() && next != 0;) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    next = step(next, path.substr(begin, end - begin));
    if (is_over(next)) return end;
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace cacheshim
