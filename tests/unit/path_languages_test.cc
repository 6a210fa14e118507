// SPDX-License-Identifier: Apache-2.0
#include "store/path_languages.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "store/path_pattern.h"

namespace cacheshim {
namespace {

// Whether some path is in both languages; and whether one is in the first alone.
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

TEST(PathLanguages, TellWhatTwoPatternsShare) {
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

TEST(PathLanguages, GiveUpInsteadOfWorkingForever) {
  PathLanguages languages;
  const auto id = languages.add();
  languages.add_names(id, "*a??????????????????????????????");
  EXPECT_FALSE(languages.find_path([](const auto&) { return false; }).is_decided);
}

}  // namespace
}  // namespace cacheshim
