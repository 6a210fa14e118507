// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/path_languages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "store/profiles/path_pattern.h"

namespace cacheshim {
namespace {

// Returns two values: whether any path is in both languages, and whether any path is only in the first language.
std::pair<bool, bool> relation(const std::string& a, const std::string& b) {
  PathLanguages languages;
  const auto first = languages.add();
  const auto second = languages.add();
  languages.add_pattern(first, a);
  languages.add_pattern(second, b);
  const auto both =
      languages.find_path([&](const auto& held) { return held[first] && held[second]; });
  const auto alone =
      languages.find_path([&](const auto& held) { return held[first] && !held[second]; });
  EXPECT_TRUE(both.is_decided && alone.is_decided);
  if (both.path) {
    EXPECT_TRUE(PathPattern(a).matches(*both.path)) << a << ' ' << *both.path;
    EXPECT_TRUE(PathPattern(b).matches(*both.path)) << b << ' ' << *both.path;
  }
  if (alone.path) {
    EXPECT_TRUE(PathPattern(a).matches(*alone.path)) << a << ' ' << *alone.path;
    EXPECT_FALSE(PathPattern(b).matches(*alone.path)) << b << ' ' << *alone.path;
  }
  return {both.path.has_value(), alone.path.has_value()};
}

TEST(PathLanguages, FindWhatTwoPatternsShare) {
  const std::tuple<const char*, const char*, bool, bool> cases[] = {
      {"*.so", "*.so", true, false},
      {"*.so", "*", true, false},
      {"*", "*.so", true, true},
      {"a*", "*b", true, true},
      {"a", "b", false, true},
      {"a?", "a", false, true},
      {"*.tmp", "*.so", false, true},
      {"*/a", "**/a", true, false},
      {"**/a", "*/a", true, true},
      {"**", "*", true, true},
      {"a/**", "a/b/c", true, true},
      {"a/**/b", "a/b", true, true},
      {"[0-9]*", "[!0-9]*", false, true},
      {"[0-9]*", "[^a-z]*", true, false},
      {"[[:digit:]]", "?", true, false},
      {"[]]", "]", true, false},
      {"[a", "[a", true, false},
      {"[a", "a", false, true},
      {"\\*", "*", true, false},
      {"\\*", "a", false, true},
      {"a[/]b", "a", false, true}};
  for (const auto& [a, b, share, is_alone] : cases) {
    EXPECT_EQ(relation(a, b), std::make_pair(share, is_alone)) << a << ' ' << b;
  }
}

TEST(PathLanguages, KnowNamesAndWhatIsBelowThem) {
  PathLanguages languages;
  const auto scratch = languages.add();
  const auto objects = languages.add();
  const auto inside = languages.add();
  languages.add_names(scratch, "tmp*", true);
  languages.add_ending(objects, ".o");
  languages.add_names_in(inside, "KEY", "*");
  const auto found = languages.find_path(
      [&](const auto& held) { return held[scratch] && held[objects] && held[inside]; });
  ASSERT_TRUE(found.path);
  EXPECT_EQ(*found.path, "KEY/tmp.o");
  const auto deep = languages.find_path(
      [&](const auto& held) { return held[scratch] && held[objects] && !held[inside]; });
  ASSERT_TRUE(deep.path);
}

// Returns all valid paths of at most `length` characters from `letters`.
std::vector<std::string> all_paths(const std::string& letters, std::size_t length) {
  std::vector<std::string> words{""};
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (words[at].size() == length) continue;
    for (const char letter : letters) words.push_back(words[at] + letter);
  }
  std::erase_if(words, [](const std::string& word) { return !PathPattern::is_valid(word); });
  return words;
}

std::string random_pattern(std::mt19937& random) {
  static const char* const kParts[] = {"a",   "b",    "*",     "?",  "a*", "*b",
                                       "*a*", "[!a]", "[ab]?", "**", "**", "\\a"};
  std::string pattern;
  for (auto count = random() % 4 + 1; count > 0; --count) {
    pattern += (pattern.empty() ? "" : "/") + std::string(kParts[random() % std::size(kParts)]);
  }
  return pattern;
}

// Compares PathLanguages with a reference that matches every short path with PathPattern. PathLanguages may find a path
// that is too long for the reference; the test then verifies that path with PathPattern.
TEST(PathLanguages, AgreeWithEveryShortPathForRandomPatterns) {
  std::mt19937 random(20);
  const std::vector<std::string> paths = all_paths("ab/", 7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> patterns;
    PathLanguages languages;
    for (int i = 0; i < 3; ++i) {
      patterns.push_back(random_pattern(random));
      languages.add_pattern(languages.add(), patterns.back());
    }
    const auto held_by = [&](const std::string& path) {
      PathLanguages::Accepts held;
      for (const std::string& pattern : patterns)
        held.push_back(PathPattern(pattern).matches(path));
      return held;
    };
    std::set<PathLanguages::Accepts> possible;
    for (const std::string& path : paths) possible.insert(held_by(path));
    for (unsigned bits = 0; bits < 8; ++bits) {
      const PathLanguages::Accepts wanted = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      const auto found = languages.find_path([&](const auto& held) { return held == wanted; });
      const std::string what = fmt::format("{} {:03b}", fmt::join(patterns, " "), bits);
      ASSERT_TRUE(found.is_decided) << what;
      EXPECT_TRUE(found.path || !possible.contains(wanted)) << what;
      EXPECT_TRUE(!found.path || held_by(*found.path) == wanted) << what << ' ' << *found.path;
    }
  }
}

TEST(PathLanguages, GiveUpInsteadOfWorkingForever) {
  PathLanguages languages;
  const auto id = languages.add();
  languages.add_names(id, "*a??????????????????????????????");
  EXPECT_FALSE(languages.find_path([](const auto&) { return false; }).is_decided);
}

}  // namespace
}  // namespace cacheshim
