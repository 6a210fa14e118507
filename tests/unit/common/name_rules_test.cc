// SPDX-License-Identifier: Apache-2.0
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/direct_filter.h"
#include "fuse/jobs/name_rule_table.h"

namespace cacheshim {
namespace {

TEST(NamePattern, MatchesAsFnmatchDoes) {
  std::mt19937 random(7);
  const auto text = [&](std::string_view alphabet, std::size_t most) {
    std::string made;
    for (std::size_t left = random() % (most + 1); left > 0; --left) {
      made += alphabet[random() % alphabet.size()];
    }
    return made;
  };
  int matches = 0;
  for (int i = 0; i < 300'000; ++i) {
    const std::string pattern = text("ab**?.", 7);
    const std::string name = text("ab.", 7);
    const bool expected = ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    ASSERT_EQ(may_match_pattern(pattern, name), expected) << pattern << " and " << name;
    matches += expected;
  }
  EXPECT_GT(matches, 10'000);
}

TEST(NamePattern, IsNeverNarrowerThanFnmatch) {
  std::mt19937 random(11);
  constexpr std::string_view kAlphabet = "ab*?[]!^-\\.";
  for (int i = 0; i < 300'000; ++i) {
    std::string pattern;
    std::string name;
    for (int left = static_cast<int>(random() % 8); left > 0; --left) {
      pattern += kAlphabet[random() % kAlphabet.size()];
    }
    for (int left = static_cast<int>(random() % 6); left > 0; --left) {
      name += "ab].-["[random() % 6];
    }
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
    ASSERT_TRUE(may_match_pattern(pattern, name)) << pattern << " and " << name;
    if (name.empty()) continue;
    const char first = first_of_all_matches(pattern);
    const char last = last_of_all_matches(pattern);
    ASSERT_TRUE(first == '\0' || first == name.front()) << pattern << " and " << name;
    ASSERT_TRUE(last == '\0' || last == name.back()) << pattern << " and " << name;
  }
}

TEST(NamePattern, ReportsWhatAllItsMatchesBeginAndEndWith) {
  EXPECT_EQ(first_of_all_matches("tmp.*"), 't');
  EXPECT_EQ(last_of_all_matches("tmp.*"), '\0');
  EXPECT_EQ(first_of_all_matches("*.part"), '\0');
  EXPECT_EQ(last_of_all_matches("*.part"), 't');
  for (const char* pattern : {"", "*", "?", "[ab]", "\\*"}) {
    EXPECT_EQ(first_of_all_matches(pattern), '\0') << pattern;
    EXPECT_EQ(last_of_all_matches(pattern), '\0') << pattern;
  }
}

std::vector<Profile> two_families() {
  Profile one;
  one.name = "one";
  one.classes = {{NameClass::kScratch, PathPattern("tmp.*")},
                 {NameClass::kScratch, PathPattern("*.part")}};
  Profile other;
  other.name = "other";
  return {one, other};
}

TEST(NameRuleTable, FindsMountOnlyNamesByFamilyAndComponent) {
  const NameRuleTable table(two_families());
  EXPECT_TRUE(table.is_mount_only("one/K/tmp.7"));
  EXPECT_TRUE(table.is_mount_only("one/tmp.7/x"));
  EXPECT_TRUE(table.is_mount_only("one/x.part"));
  EXPECT_FALSE(table.is_mount_only("one/K/x"));
  EXPECT_FALSE(table.is_mount_only("one/K/parts"));
  // The rules do not apply to the directory of a family, or to unknown families.
  EXPECT_FALSE(table.is_mount_only("tmp.7"));
  EXPECT_FALSE(table.is_mount_only("other/tmp.7"));
  EXPECT_FALSE(table.is_mount_only("unknown/tmp.7"));
  EXPECT_FALSE(table.is_mount_only(""));
}

// The mount answers for each path that matches a pattern of class scratch, lock or baton, and for
// all paths below it. For class flight, the table compares only the last component of a path.
TEST(NameRuleTable, FindsPatternsOfPathsByADistinctiveComponent) {
  Profile profile;
  profile.name = "one";
  profile.classes = {{NameClass::kScratch, PathPattern("**/ops/tmp/*.ninja")},
                     {NameClass::kLock, PathPattern("locks/**")},
                     {NameClass::kBaton, PathPattern("*/baton")},
                     {NameClass::kFlight, PathPattern("cache/*/kernel.cubin")},
                     {NameClass::kFlight, PathPattern("all/**")}};
  const NameRuleTable table({profile});
  EXPECT_TRUE(table.is_mount_only("one/a/ops/tmp/x.ninja"));
  EXPECT_TRUE(table.is_mount_only("one/a/ops/tmp/x.ninja/below"));
  EXPECT_FALSE(table.is_mount_only("one/a/ops/x/x.so"));
  EXPECT_TRUE(table.is_mount_only("one/locks"));
  EXPECT_TRUE(table.is_mount_only("one/locks/a/b"));
  EXPECT_TRUE(table.is_mount_only("one/x/baton"));
  EXPECT_FALSE(table.is_mount_only("one/cache/K/kernel.cubin"));
  const NameRules rules = NameRules::over(table.bytes(), table.family_count());
  const FamilyRecord family = *rules.find("one");
  EXPECT_TRUE(rules.any_applies(family, NameRule::kAwaited, "kernel.cubin"));
  EXPECT_TRUE(rules.any_applies(family, NameRule::kAwaited, "anything"));  // because of "all/**"
}

TEST(NameRuleTable, LeavesAllNamesToTheMountIfEveryNameIsShared) {
  Profile profile;
  profile.name = "one";
  profile.classes = {{NameClass::kShared, PathPattern("**/*")}};
  EXPECT_TRUE(NameRuleTable({profile}).is_mount_only("one/a/b"));
}

TEST(NameRuleTable, MarksFamiliesWhoseDirectoriesAreEntries) {
  const auto is_marked = [](std::vector<EntryRule> entries) {
    Profile profile;
    profile.name = "one";
    profile.entries = std::move(entries);
    const NameRuleTable table({profile});
    return NameRules::over(table.bytes(), table.family_count()).find("one")->entries_are_directories;
  };
  const auto rule = [](std::string_view path, std::vector<std::string> files = {}) {
    EntryRule made{.path = PathPattern(path)};
    made.files = std::move(files);
    return made;
  };
  EXPECT_TRUE(is_marked({rule("*")}));
  EXPECT_FALSE(is_marked({}));
  EXPECT_FALSE(is_marked({rule("*/*")}));
  EXPECT_FALSE(is_marked({rule("*.cu"), rule("*")}));
  EXPECT_FALSE(is_marked({rule("*", {".json"})}));  // one directory may contain several entries
}

TEST(NameRuleTable, ATruncatedTableIsEmpty) {
  const NameRuleTable table(two_families());
  const std::string whole = table.bytes();
  ASSERT_TRUE(NameRules::over(whole, table.family_count()).find("one"));
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    const NameRules rules = NameRules::over(cut, table.family_count());
    const auto family = rules.find("one");
    if (!family) continue;  // a lookup must not read beyond an accepted table
    EXPECT_FALSE(rules.any_applies(*family, NameRule::kMountOnly, "x"));
  }
}

// The owner of a mapped table may overwrite it after the check. The table is on the heap, so that AddressSanitizer
// detects a read beyond its end.
TEST(NameRuleTable, AnOverwrittenTableIsNotReadBeyondItsEnd) {
  const NameRuleTable table(two_families());
  const std::size_t size = table.bytes().size();
  for (const int byte : {0x00, 0x04, 0x7c, 0xff}) {
    const auto bytes = std::make_unique<char[]>(size);
    std::memcpy(bytes.get(), table.bytes().data(), size);
    const NameRules rules = NameRules::over({bytes.get(), size}, table.family_count());
    const auto family = rules.find("one");
    ASSERT_TRUE(family);
    std::memset(bytes.get(), byte, size);
    (void)rules.find("one");
    (void)rules.find(std::string(static_cast<std::size_t>(byte), 'x'));
    (void)rules.any_applies(*family, NameRule::kMountOnly, "x");
    FamilyRecord overwritten = *family;
    overwritten.rules = static_cast<std::uint32_t>(size) - 4;
    EXPECT_TRUE(rules.any_applies(overwritten, NameRule::kMountOnly, "x"));
  }
}

TEST(NameRuleTable, AMisalignedTableIsEmpty) {
  const NameRuleTable table(two_families());
  const std::string shifted = " " + table.bytes();
  const std::string_view bytes = std::string_view(shifted).substr(1);
  EXPECT_FALSE(NameRules::over(bytes, table.family_count()).find("one"));
}

// Searching a table of 1 MiB in which all families share the same rules would take minutes. So NameRules treats a table
// whose families share their rules as empty.
TEST(NameRuleTable, ATableWhoseFamiliesShareTheirRulesIsEmpty) {
  constexpr std::uint32_t kCount = 1000;
  std::vector<std::uint32_t> words(kCount * sizeof(FamilyRecord) / 4 + kCount * sizeof(NameRuleRecord) / 4);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const FamilyRecord family{0, 0, kCount * sizeof(FamilyRecord), kCount, 0};
    std::memcpy(&words[i * sizeof family / 4], &family, sizeof family);
  }
  const std::string_view bytes(static_cast<const char*>(static_cast<const void*>(words.data())), 4 * words.size());
  EXPECT_TRUE(NameRules::over(bytes, 1).find(""));
  EXPECT_FALSE(NameRules::over(bytes, kCount).find(""));
}

TEST(FilterView, KeepsItsSizeIfItsHeaderIsOverwritten) {
  struct Page {
    FilterHeader header{kFilterMagic, kFilterVersion, 1, 0, 0};
    std::uint64_t word = 0;
  };
  const auto page = std::make_unique<Page>();
  const FilterView filter = FilterView::over(page.get(), sizeof *page);
  ASSERT_TRUE(filter);
  page->header.word_count = 1U << 30;
  ShadowProbes probes;
  probes.begin(filter);
  EXPECT_TRUE(probes.descend("triton") && probes.finish());
  EXPECT_FALSE(probes.may_be_shadowed());
  EXPECT_EQ(filter.word_count(), 1U);
}

}  // namespace
}  // namespace cacheshim
