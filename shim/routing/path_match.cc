// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/path_match.h"

#include <cstring>

namespace cacheshim {
namespace {

std::string_view rest_of(std::string_view text, std::size_t from) {
  return {text.data() + from, text.size() - from};
}

// Completes the match of a path whose prefix part ends at match.rest.
PathMatch end_match(std::string_view path, PathMatch match) {
  std::string_view rest = rest_of(path, match.rest);
  std::size_t depth = 0;
  std::size_t end = match.rest;
  for (;;) {
    const std::string_view component = take_next_component(rest);
    match.matched = component.empty();
    if (match.matched) return match;
    match.inside = end;
    end = path.size() - rest.size();
    if (component != "..") {
      ++depth;
    } else if (depth-- == 0) {
      match.left = end;
      return match;
    }
  }
}

// Returns the length of prefix[0, length) without its last component. Requires: a component ends at
// `length`.
std::size_t parent_length(std::string_view prefix, std::size_t length) {
  while (length > 0 && prefix.data()[--length] != '/') {
  }
  return length;
}

// Follows a path along the prefix, component by component.
class Walk {
 public:
  explicit Walk(std::string_view prefix) : prefix_(prefix) {}

  void enter(std::string_view component) {
    std::string_view rest = rest_of(prefix_, matched_);
    if (beside_ == 0 && take_next_component(rest) == component) {
      matched_ = prefix_.size() - rest.size();
    } else {
      ++beside_;
    }
  }
  void leave() {
    if (beside_ > 0) {
      --beside_;
    } else {
      matched_ = parent_length(prefix_, matched_);
    }
  }
  bool complete() const { return beside_ == 0 && matched_ == prefix_.size(); }
  std::size_t matched() const { return matched_; }

 private:
  std::string_view prefix_;
  std::size_t matched_ = 0;  // bytes of the prefix that the path has followed
  std::size_t beside_ = 0;   // the number of components since the path left the prefix
};

}  // namespace

std::string_view take_next_component(std::string_view& path) {
  const char* at = path.data();
  const char* const end = at + path.size();
  for (;;) {
    while (at != end && *at == '/') ++at;
    const char* const begin = at;
    while (at != end && *at != '/') ++at;
    const std::string_view component(begin, static_cast<std::size_t>(at - begin));
    if (component == ".") continue;
    path = {at, static_cast<std::size_t>(end - at)};
    return component;
  }
}

bool starts_with_directory(std::string_view text, std::string_view prefix) {
  if (text.size() < prefix.size()) return false;
  if (std::memcmp(text.data(), prefix.data(), prefix.size()) != 0) return false;
  return text.size() == prefix.size() || text.data()[prefix.size()] == '/';
}

bool is_plain_path(std::string_view path) {
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    if (path.data()[i] != '/') continue;
    const char next = path.data()[i + 1];
    if (next == '/') return false;
    if (next != '.') continue;
    const std::string_view component = rest_of(path, i + 1);
    if (starts_with_directory(component, ".") || starts_with_directory(component, ".."))
      return false;
  }
  return true;
}

PathMatch match_prefix(std::string_view path, std::string_view prefix) {
  if (starts_with_directory(path, prefix)) return end_match(path, {.rest = prefix.size()});
  Walk walk(prefix);
  PathMatch match;
  std::string_view rest = path;
  for (;;) {
    const std::string_view component = take_next_component(rest);
    if (component.empty()) return {};
    const std::size_t end = path.size() - rest.size();
    if (component == "..") {
      walk.leave();
      match.head = end;
      match.same_as = walk.matched();
      continue;
    }
    walk.enter(component);
    if (!walk.complete()) continue;
    match.rest = end;
    return end_match(path, match);
  }
}

PathMatch match_rest(std::string_view path, std::size_t rest) {
  return end_match(path, {.rest = rest});
}

std::size_t normalise_path(std::string_view path, char* out, std::size_t capacity) {
  if (path.empty() || *path.data() != '/') return 0;
  std::size_t length = 0;
  for (;;) {
    const std::string_view component = take_next_component(path);
    if (component.empty()) break;
    if (component == ".." || length + component.size() + 2 > capacity) return 0;
    out[length++] = '/';
    std::memcpy(out + length, component.data(), component.size());
    length += component.size();
  }
  if (length > 0) out[length] = '\0';
  return length;
}

}  // namespace cacheshim
