// SPDX-License-Identifier: Apache-2.0
#include "remote/manifest_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/printable_text.h"
#include "store/sys/paths.h"

namespace cacheshim::remote {
namespace {

constexpr std::size_t kMostNameBytes = 255;

ObjectRefusal corrupt(std::string message) { return {Refusal::kCorrupt, std::move(message)}; }
ObjectRefusal too_large(std::string message) { return {Refusal::kTooLarge, std::move(message)}; }

bool is_printable(std::string_view text) { return printable(text) == text; }

bool is_digest(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whether the path is relative, without empty, "." and ".." components, and printable UTF-8.
bool is_normal(std::string_view path) {
  if (path.empty() || path.back() == '/' || !is_printable(path)) return false;
  while (!path.empty()) {
    const std::string_view name = take_component(path);
    if (name.empty() || name == "." || name == ".." || name.size() > kMostNameBytes) return false;
  }
  return true;
}

bool is_file_before(const EntryFile& left, const EntryFile& right) {
  return is_before(left.path, right.path);
}

Problem problem_of_file(const EntryFile& file, const IsPart& is_part, const ObjectLimits& limits) {
  if (file.link.empty()) {
    if (file.mode > kPermissions) return corrupt(in_quotes(file.path) + " has special mode bits");
    if (!is_digest(file.digest, 32)) return corrupt(in_quotes(file.path) + " has no digest");
    return std::nullopt;
  }
  // All components of the target lead downward, so the target stays below the symlink's directory, also through other
  // symlinks of the entry.
  if (auto problem = problem_of_path(file.link, limits)) return problem;
  if (is_part(join_path(parent_path(file.path), file.link))) return std::nullopt;
  return corrupt("the symlink " + in_quotes(file.path) + " leads out of the entry");
}

Problem problem_of_sizes(const Manifest& manifest, const ObjectLimits& limits) {
  if (manifest.files.size() + manifest.directories.size() > limits.files) {
    return too_large(fmt::format("it has more than {} files", limits.files));
  }
  if (manifest.content_size > limits.content_bytes) {
    return too_large(fmt::format("its files have more than {} bytes", limits.content_bytes));
  }
  std::uint64_t left = manifest.content_size;
  for (const EntryFile& file : manifest.files) {
    if (file.size > left) return corrupt("its sizes contradict each other");
    left -= file.size;
  }
  if (left > 0) return corrupt("its sizes contradict each other");
  return std::nullopt;
}

// In the order of is_before(), the paths below a path directly follow it. So it is enough to compare neighbors.
Problem problem_of_order(const Manifest& manifest) {
  std::vector<std::string_view> paths(manifest.directories.begin(), manifest.directories.end());
  if (!std::is_sorted(manifest.files.begin(), manifest.files.end(), is_file_before) ||
      !std::is_sorted(paths.begin(), paths.end(), is_before)) {
    return corrupt("its paths are not sorted");
  }
  for (const EntryFile& file : manifest.files) paths.push_back(file.path);
  std::sort(paths.begin(), paths.end(), is_before);
  for (std::size_t i = 1; i < paths.size(); ++i) {
    if (paths[i] == paths[i - 1])
      return corrupt("the path " + in_quotes(paths[i]) + " is repeated");
    if (is_at_or_below(paths[i], paths[i - 1])) {
      return corrupt(in_quotes(paths[i - 1]) + " is not a directory with files, but has " +
                     in_quotes(paths[i]));
    }
  }
  return std::nullopt;
}

}  // namespace

std::string in_quotes(std::string_view name) { return fmt::format("'{}'", printable(name)); }

Problem problem_of_path(const std::string& path, const ObjectLimits& limits) {
  if (path.size() > limits.path_bytes) return too_large("a path is too long");
  const auto slashes = static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
  if (slashes >= limits.depth) return too_large("the path " + in_quotes(path) + " is too deep");
  if (!is_normal(path)) return corrupt("the path " + in_quotes(path) + " is not normal");
  return std::nullopt;
}

bool is_before(std::string_view left, std::string_view right) {
  const auto rank = [](char c) { return c == '/' ? 0 : int{static_cast<unsigned char>(c)}; };
  return std::lexicographical_compare(
      left.begin(), left.end(), right.begin(), right.end(),
      [&](char one, char other) { return rank(one) < rank(other); });
}

Problem problem_of(const Manifest& manifest, const IsPart& is_part, const ObjectLimits& limits) {
  if (auto problem = problem_of_path(manifest.unit, limits)) return problem;
  for (const std::string& name : {manifest.facts.node, manifest.facts.profile}) {
    if (name.size() > kMostNameBytes || !is_printable(name))
      return corrupt("a name in it is malformed");
  }
  if (!is_digest(manifest.archive_digest, 64)) return corrupt("it has no digest of its archive");
  if (auto problem = problem_of_sizes(manifest, limits)) return problem;
  const auto problem_at = [&](const std::string& path) -> Problem {
    if (auto problem = problem_of_path(path, limits)) return problem;
    if (!is_part(path)) return corrupt("the path " + in_quotes(path) + " is not part of the entry");
    return std::nullopt;
  };
  for (const std::string& path : manifest.directories) {
    if (auto problem = problem_at(path)) return problem;
  }
  for (const EntryFile& file : manifest.files) {
    if (auto problem = problem_at(file.path)) return problem;
    if (auto problem = problem_of_file(file, is_part, limits)) return problem;
  }
  return problem_of_order(manifest);
}

}  // namespace cacheshim::remote
