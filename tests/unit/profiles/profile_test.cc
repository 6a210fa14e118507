// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/profile.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cacheshim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTriton = R"(name = "triton"
variable = "TRITON_CACHE_DIR"
unless = ["TRITON_HOME"]
default_paths = ["~/.triton/cache"]
evidence = "run"

[[entry]]
path = "*"
complete = ["__grp__*.json"]
complete_single = ["*.so", "*.json"]
paths_in = ["__grp__*.json"]

[[entry]]
path = "a/**/b"
files = [".body", ""]
renamed = true

[class]
scratch = ["tmp.pid_*", "old/tmp"]
lock = ["lock"]
baton = ["**/baton"]
shared = ["index"]
flight = ["*.json"]
)";

std::string refusal(const std::string& text) {
  const auto parsed = parse_profile(text, "x.toml");
  const auto* error = std::get_if<ProfileError>(&parsed);
  return error != nullptr ? error->message : "accepted";
}

// Returns the error for a minimal profile with `line` added at its end.
std::string refusal_with(const std::string& line) {
  return refusal("name = \"x\"\nevidence = \"doc\"\n" + line + "\n");
}

class ProfileDirectories : public testing::Test {
 protected:
  ProfileDirectories() {
    std::string name = testing::TempDir() + "/profiles.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no scratch directory";
    root_ = name;
  }
  ~ProfileDirectories() override { fs::remove_all(root_); }

  std::string directory(const std::string& name) const { return root_ / name; }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  static std::string minimal(const std::string& name, const std::string& variable) {
    return "name = \"" + name + "\"\nvariable = \"" + variable + "\"\nevidence = \"doc\"\n";
  }

  fs::path root_;
};

TEST(Profile, ReadsEveryField) {
  const auto parsed = parse_profile(kTriton, "triton.toml");
  const auto* profile = std::get_if<Profile>(&parsed);
  ASSERT_NE(profile, nullptr) << std::get<ProfileError>(parsed).message;
  EXPECT_EQ(profile->name, "triton");
  EXPECT_EQ(profile->variable, "TRITON_CACHE_DIR");
  EXPECT_EQ(profile->unless, std::vector<std::string>{"TRITON_HOME"});
  EXPECT_EQ(profile->default_paths, std::vector<std::string>{"~/.triton/cache"});
  EXPECT_EQ(profile->evidence, Evidence::kRun);
  EXPECT_EQ(profile->origin, "triton.toml");
  ASSERT_EQ(profile->entries.size(), 2U);
  const EntryRule& directory = profile->entries[0];
  EXPECT_EQ(directory.path.text(), "*");
  EXPECT_TRUE(directory.is_directory() && directory.says_when_complete() && !directory.renamed);
  EXPECT_TRUE(directory.completes("__grp__k.json") && directory.holds_paths("__grp__k.json"));
  EXPECT_FALSE(directory.completes("k.json") || directory.holds_paths("k.json"));
  EXPECT_TRUE(directory.completes_alone("k.json"));
  const EntryRule& files = profile->entries[1];
  EXPECT_EQ(files.files, (std::vector<std::string>{".body", ""}));
  EXPECT_TRUE(!files.is_directory() && files.says_when_complete() && files.renamed);
}

TEST(Profile, FindsTheLockThatAnEntryIsBuiltUnder) {
  const auto parsed = parse_profile(
      "name = \"x\"\nevidence = \"read\"\n"
      "[[entry]]\npath = \"a/*\"\nfiles = [\".so\"]\nbuilt_under = \"locks/*.lock\"\n",
      "x.toml");
  const EntryRule& rule = std::get<Profile>(parsed).entries.front();
  EXPECT_FALSE(rule.says_when_complete());
  const std::tuple<const char*, const char*, bool> cases[] = {
      {"locks/cab.lock", "cab", true},
      {"locks/cab.lock", "cab.main", true},
      {"locks/cab.lock", "cabd", false},
      {"locks/cabd.lock", "cab", false},
      {"locks/cab", "cab", false},
      {"cab.lock", "cab", false},
      {"other/locks/cab.lock", "cab", false},
      {"locks/.lock", "cab", false},
      {"locks/cab.lock", "deep/cab", true},
      {"lock", "cab", false}};
  for (const auto& [lock, entry, is_so] : cases) {
    EXPECT_EQ(rule.is_built_under(lock, entry), is_so) << lock << ' ' << entry;
  }
}

EntryRule rule_of(const std::string& path, const std::string& lock) {
  const auto parsed = parse_profile("name = \"x\"\nevidence = \"read\"\n[[entry]]\npath = \"" +
                                        path + "\"\nbuilt_under = \"" + lock + "\"\n",
                                    "x.toml");
  EXPECT_TRUE(std::holds_alternative<Profile>(parsed)) << lock;
  return std::get<Profile>(parsed).entries.front();
}

TEST(Profile, FindsALockByThePlaceOfItsEntry) {
  const EntryRule within = rule_of("*/*", "./*/lock");
  const EntryRule beside = rule_of("**/ops/*", "./tmp/*.lock");
  const EntryRule at_the_top = rule_of("*", "./*/lock");
  const std::tuple<const EntryRule*, const char*, const char*, bool> cases[] = {
      {&within, "py311/op/lock", "py311/op", true},
      {&within, "py311/op/lock", "py312/op", false},
      {&within, "py311/op/lock", "py311/op.v2", false},
      {&within, "py311/op/sub/lock", "py311/op", false},
      {&within, "op/lock", "py311/op", false},
      {&within, "lock", "py311/op", false},
      {&beside, "1/ops/tmp/op.lock", "1/ops/op", true},
      {&beside, "1/ops/tmp/op.lock", "2/ops/op", false},
      {&beside, "1/ops/op/tmp/op.lock", "1/ops/op", false},
      {&at_the_top, "op/lock", "op", true},
      {&at_the_top, "op/lock", "o", false}};
  for (const auto& [rule, lock, entry, is_so] : cases) {
    EXPECT_EQ(rule->is_built_under(lock, entry), is_so) << lock << ' ' << entry;
    if (!is_so) continue;
    EXPECT_EQ(rule->entry_built_under(lock), entry);
  }
  EXPECT_EQ(within.entry_built_under("lock"), "");
  EXPECT_EQ(within.entry_built_under("py311/op/other"), "");
  EXPECT_EQ(beside.entry_built_under("tmp/op.lock"), "op");  // although no rule matches "op"
  EXPECT_EQ(beside.entry_built_under("ops/tmp/.lock"), "");
  EXPECT_EQ(rule_of("*", "locks/*.lock").entry_built_under("locks/op.lock"), "");
}

TEST(Profile, FindsTheClassOfAName) {
  const auto parsed = parse_profile(kTriton, "triton.toml");
  const auto& profile = std::get<Profile>(parsed);
  const std::string long_name(300, 'k');
  const std::pair<const char*, NameClass> cases[] = {
      {"K/k.cubin", NameClass::kPrivate},
      {"K/tmp.pid_1_a", NameClass::kScratch},
      {"K/tmp.pid_1_a/lock", NameClass::kScratch},
      {"tmp.pid_1", NameClass::kScratch},
      {"K/xtmp.pid_1", NameClass::kPrivate},
      {"old/tmp/x", NameClass::kScratch},
      {"K/old/tmp", NameClass::kPrivate},
      {"K/lock", NameClass::kLock},
      {"lock", NameClass::kLock},
      {"lock/x", NameClass::kPrivate},
      {"baton", NameClass::kBaton},
      {"a/b/baton", NameClass::kBaton},
      {"a/index", NameClass::kShared},
      {"K/k.json", NameClass::kFlight},
      {"", NameClass::kPrivate},
      {long_name.c_str(), NameClass::kPrivate}};
  for (const auto& [path, name_class] : cases) {
    EXPECT_EQ(to_string(profile.class_of(path)), to_string(name_class)) << path;
  }
}

TEST(Profile, AGuessIsNeitherWaitedForNorWrittenThrough) {
  for (const char* name_class : {"flight", "shared"}) {
    const auto parsed = parse_profile(
        "name = \"x\"\nevidence = \"guess\"\n[class]\n" + std::string(name_class) + " = [\"*\"]\n",
        "x.toml");
    EXPECT_EQ(std::get<Profile>(parsed).class_of("a"), NameClass::kPrivate) << name_class;
  }
}

// Implements the definition of a pattern literally: tries "**" with each number of components.
bool matches_by_definition(std::vector<std::string> parts, std::vector<std::string> names) {
  if (parts.empty()) return names.empty();
  const std::string part = parts.front();
  parts.erase(parts.begin());
  if (part == "**" && matches_by_definition(parts, names)) return true;
  if (names.empty()) return false;
  const std::string name = names.front();
  names.erase(names.begin());
  if (part != "**") return matches_name(part, name) && matches_by_definition(parts, names);
  parts.insert(parts.begin(), part);
  return matches_by_definition(parts, names);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string path;
  for (const std::string& part : parts) path += (path.empty() ? "" : "/") + part;
  return path;
}

TEST(PathPattern, MatchesAsDefinedForRandomPatterns) {
  std::mt19937 random(7);
  const auto pick = [&](const std::vector<std::string>& words, std::size_t most) {
    std::vector<std::string> picked(1 + random() % most);
    for (std::string& one : picked) one = words[random() % words.size()];
    return picked;
  };
  for (int i = 0; i < 20000; ++i) {
    const auto parts = pick({"**", "**", "a", "b*", "*"}, 5);
    const auto names = pick({"a", "b", "bb", "c"}, 6);
    const PathPattern pattern(joined(parts));
    EXPECT_EQ(pattern.matches(joined(names)), matches_by_definition(parts, names))
        << joined(parts) << " " << joined(names);
    std::optional<std::size_t> front;
    for (std::size_t count = 1; count <= names.size() && !front; ++count) {
      const std::vector<std::string> some(names.begin(), names.begin() + static_cast<long>(count));
      if (matches_by_definition(parts, some)) front = joined(some).size();
    }
    EXPECT_EQ(pattern.match_front(joined(names)), front) << joined(parts) << " " << joined(names);
  }
}

TEST(PathPattern, APatternWithTooManyComponentsMatchesNothing) {
  const auto repeated = [](std::size_t count) {
    return joined(std::vector<std::string>(count, "a"));
  };
  EXPECT_TRUE(PathPattern(repeated(PathPattern::kMostParts)).matches(repeated(PathPattern::kMostParts)));
  for (std::size_t count = PathPattern::kMostParts + 1; count < 140; ++count) {
    const PathPattern pattern(repeated(count) + "/**");
    for (std::size_t depth = 0; depth < 140; ++depth) {
      EXPECT_FALSE(pattern.matches(repeated(depth))) << count << ' ' << depth;
      EXPECT_EQ(pattern.match_front(repeated(depth)), std::nullopt) << count << ' ' << depth;
    }
  }
}

TEST(PathPattern, MatchesByComponents) {
  const std::tuple<const char*, const char*, bool> cases[] = {
      {"*", "a", true},           {"*", "a/b", false},        {"*/b", "a/b", true},
      {"a*/?", "abc/d", true},    {"a*/?", "abc/de", false},  {"**", "", true},
      {"**", "a/b/c", true},      {"**/c", "a/b/c", true},    {"**/c", "c", true},
      {"**/c", "a/b", false},     {"a/**/c", "a/c", true},    {"a/**/c", "a/x/y/c", true},
      {"a/**/c", "b/x/c", false}, {"[0-9]*/x", "7a/x", true}, {"[0-9]*/x", "a7/x", false}};
  for (const auto& [pattern, path, matches] : cases) {
    EXPECT_EQ(PathPattern(pattern).matches(path), matches) << pattern << ' ' << path;
  }
  EXPECT_EQ(PathPattern("*/*").match_front("a/bc/d"), 4U);
  EXPECT_EQ(PathPattern("**/k").match_front("a/k/k"), 3U);
  EXPECT_EQ(PathPattern("*/*").match_front("a"), std::nullopt);
}

TEST(Profile, MessagesNameFileAndLine) {
  EXPECT_EQ(refusal("name = \"x\"\ncolour = 1\nevidence = \"doc\"\n"),
            "x.toml:2: unknown key 'colour'");
  EXPECT_EQ(refusal_with("[[entry]]\npath = \"*\"\ndeep = 1"),
            "x.toml:5: unknown key 'entry.deep'");
  EXPECT_EQ(refusal_with("[class]\nsecret = []"), "x.toml:4: unknown key 'class.secret'");
  EXPECT_EQ(refusal("name = 3\n"), "x.toml:1: name: must be a string");
  EXPECT_EQ(refusal("name = \n").rfind("x.toml:1: ", 0), 0U);
}

TEST(Profile, NeedsANameThatIsADirectoryName) {
  EXPECT_NE(refusal("evidence = \"doc\"\n").find("name: missing"), std::string::npos);
  for (const char* name : {"", ".", "..", ".x", "a/b", "a b"}) {
    EXPECT_NE(refusal("name = \"" + std::string(name) + "\"\nevidence = \"doc\"\n")
                  .find("is not a directory name"),
              std::string::npos)
        << name;
  }
}

TEST(Profile, NeedsEvidenceOfAKnownKind) {
  EXPECT_NE(refusal("name = \"x\"\n").find("evidence: must be one of"), std::string::npos);
  EXPECT_EQ(refusal("name = \"x\"\nevidence = \"sure\"\n"),
            "x.toml:2: evidence: must be one of run, read, doc, guess");
}

TEST(Profile, RefusesValuesOfAWrongKindForACache) {
  EXPECT_EQ(refusal_with("variable = \"A B\""),
            "x.toml:3: variable: 'A B' is not the name of a variable");
  EXPECT_EQ(refusal_with("unless = [\"A:B\"]"), "x.toml:3: unless: 'A:B' is not the name of a variable");
  EXPECT_EQ(refusal_with("default_paths = \"~/x\""),
            "x.toml:3: default_paths: must be an array of strings");
  EXPECT_EQ(refusal_with("default_paths = [\"x\"]"),
            "x.toml:3: default_paths: 'x' must begin with / or ~/");
  EXPECT_EQ(refusal_with("class = 1"), "x.toml:3: class: must be a table");
  EXPECT_EQ(refusal_with("[class]\nlock = [\"/x\"]"),
            "x.toml:4: class.lock: '/x' is not a pattern of a path below the cache's directory");
  EXPECT_EQ(refusal_with("variable = \"A\\u0000B\""), "x.toml:3: variable: must be a string");
}

TEST(Profile, RefusesValuesOfAWrongKindForAnEntry) {
  EXPECT_EQ(refusal_with("[entry]\npath = \"*\""),
            "x.toml:3: entry: must be an array of tables, [[entry]]");
  EXPECT_EQ(refusal_with("entry = [1]"), "x.toml:3: entry: must be an array of tables, [[entry]]");
  EXPECT_EQ(refusal_with("[[entry]]\nrenamed = true"),
            "x.toml:3: entry.path: '' is not a pattern of a path below the cache's directory");
  for (const char* path : {"/a", "a/", "a//b"}) {
    EXPECT_EQ(refusal_with("[[entry]]\npath = \"" + std::string(path) + "\""),
              "x.toml:4: entry.path: '" + std::string(path) +
                  "' is not a pattern of a path below the cache's directory");
  }
  EXPECT_EQ(refusal_with("[[entry]]\npath = \"*\"\nrenamed = 1"),
            "x.toml:5: entry.renamed: must be true or false");
  EXPECT_EQ(refusal_with("[[entry]]\npath = \"*\"\ncomplete = [\"a/b\"]"),
            "x.toml:5: entry.complete: 'a/b' is not a pattern of a file name");
  EXPECT_EQ(refusal_with("[[entry]]\npath = \"*\"\nfiles = []"),
            "x.toml:5: entry.files: must name at least one ending");
  EXPECT_EQ(refusal_with("[[entry]]\npath = \"*\"\nfiles = [\"/a\"]"),
            "x.toml:5: entry.files: '/a' is not an ending of a file name");
  EXPECT_EQ(refusal_with("[[entry]]\npath = \"*\"\nfiles = [\"\"]\ncomplete_single = [\"a\"]"),
            "x.toml:6: entry.complete_single: is only for directories; use 'complete' for an entry of files");
  for (const char* lock : {"locks/x.lock", "locks/*/x.lock", "locks/**.lock", "locks/[ab]*.lock",
                           "/locks/*.lock", "*/x", "", "./x", "./*/*.lock", "./../*.lock"}) {
    EXPECT_EQ(refusal_with("[[entry]]\npath = \"*\"\nbuilt_under = \"" + std::string(lock) + "\""),
              "x.toml:5: entry.built_under: '" + std::string(lock) +
                  "' is not the path of a file with one '*' in its name");
  }
  EXPECT_EQ(
      refusal_with("[[entry]]\npath = \"*\"\nrenamed = true\nbuilt_under = \"*.lock\""),
      "x.toml:6: entry.built_under: cannot be combined with 'renamed': each shows by itself when an entry is "
      "complete");
}

TEST_F(ProfileDirectories, AreReadInOrderAndTheLaterReplaces) {
  write("a/one.toml", minimal("one", "FIRST"));
  write("a/two.toml", minimal("two", "TWO"));
  write("a/README", "no profile");
  write("b/other.toml", minimal("one", "SECOND"));
  const ProfileSet set = load_profiles({directory("a"), directory("missing"), directory("b")});
  EXPECT_TRUE(set.refused.empty());
  ASSERT_EQ(set.profiles.size(), 2U);
  EXPECT_EQ(set.profiles[0].name, "one");
  EXPECT_EQ(set.profiles[0].variable, "SECOND");
  EXPECT_EQ(set.profiles[1].name, "two");
}

TEST_F(ProfileDirectories, GoOnWithoutARefusedProfile) {
  write("a/bad.toml", "name = \"bad\"\nnonsense = 1\n");
  write("a/empty.toml", "");
  write("a/directory.toml/x", "");
  write("a/good.toml", minimal("good", "GOOD"));
  const ProfileSet set = load_profiles({directory("a")});
  ASSERT_EQ(set.profiles.size(), 1U);
  EXPECT_EQ(set.profiles[0].name, "good");
  ASSERT_EQ(set.refused.size(), 3U);
  EXPECT_EQ(set.refused[0].message,
            directory("a/bad.toml") + ":1: evidence: must be one of run, read, doc, guess");
  EXPECT_EQ(set.refused[1].message, directory("a/directory.toml") + ": cannot be read");
}

TEST_F(ProfileDirectories, RefuseASecondProfileOfOneName) {
  write("a/1.toml", minimal("same", "A"));
  write("a/2.toml", minimal("same", "B"));
  const ProfileSet set = load_profiles({directory("a")});
  ASSERT_EQ(set.profiles.size(), 1U);
  EXPECT_EQ(set.profiles[0].variable, "A");
  ASSERT_EQ(set.refused.size(), 1U);
}

TEST_F(ProfileDirectories, ThatAreNoDirectoriesAreReported) {
  write("file", "");
  const ProfileSet set = load_profiles({directory("file")});
  ASSERT_EQ(set.refused.size(), 1U);
  EXPECT_EQ(set.refused[0].message, directory("file") + ": Not a directory");
}

}  // namespace
}  // namespace cacheshim
