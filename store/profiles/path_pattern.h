// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cacheshim {

// A pattern for paths below a cache's directory. Each of its components is a pattern of fnmatch(3) without flags, or
// "**", which matches any number of components, including none. Thread-safe.
//
// Jobs choose the paths, so no path may take long to match. Trying each number of components for "**" in turn would
// take a time that grows, for "**/a/**/b", with the third power of the path's length. Instead, matching reads the path
// once and keeps the set of all parts of the pattern that may come next.
class PathPattern {
 public:
  // A pattern with more components matches nothing.
  static constexpr std::size_t kMostParts = 63;
  // Requires: `text` is relative and has no empty components (is_valid()).
  explicit PathPattern(std::string_view text);
  static bool is_valid(std::string_view text);

  const std::string& text() const { return text_; }
  bool matches(std::string_view path) const;
  // Returns the length of the shortest leading part of `path` that consists of whole components and
  // matches; nothing if there is none.
  std::optional<std::size_t> match_front(std::string_view path) const;

 private:
  using Parts =
      std::uint64_t;  // bit i: part i may come next; bit parts_.size(): no part is left
  Parts with_skipped(Parts next) const;
  Parts step(Parts next, std::string_view name) const;
  bool is_over(Parts next) const { return (next >> parts_.size() & 1U) != 0; }

  std::string text_;
  std::vector<std::string> parts_;
  Parts any_depth_ = 0;  // the parts that are "**"
};

// Matches one name as fnmatch(3) does. A name that is too long for a file matches nothing.
bool matches_name(const std::string& pattern, std::string_view name);

}  // namespace cacheshim
