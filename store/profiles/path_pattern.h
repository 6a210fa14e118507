// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cacheshim {

// A pattern of paths below a cache's directory: each component as in fnmatch(3) without flags, "**"
// for any number of components, including none. Thread-safe.
class PathPattern {
 public:
  // Patterns are relative and have no empty components (is_valid()).
  explicit PathPattern(std::string_view text);
  static bool is_valid(std::string_view text);

  const std::string& text() const { return text_; }
  bool matches(std::string_view path) const;
  // Returns the length of the shortest leading part of `path`, ending before a '/' or at its end,
  // that matches.
  std::optional<std::size_t> match_front(std::string_view path) const;

 private:
  bool matches_from(std::size_t part, std::string_view path) const;
  std::string text_;
  std::vector<std::string> parts_;
};

// Matches one name as fnmatch(3) does. A name that is too long for a file matches nothing.
bool matches_name(const std::string& pattern, std::string_view name);

}  // namespace cacheshim
