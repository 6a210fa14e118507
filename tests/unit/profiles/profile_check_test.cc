// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/profile_check.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

using Lines = std::vector<std::string>;

class ProfileCheck : public testing::Test {
 protected:
  // Returns the report on a profile with the name "x", this evidence, and then `lines`. The report's
  // lines lack the file's name.
  Lines findings(const std::string& lines, const std::string& evidence = "read") {
    const std::string path =
        write("x.toml", "name = \"x\"\nevidence = \"" + evidence + "\"\n" + lines);
    Lines found = check_profile(path);
    for (std::string& line : found) {
      EXPECT_TRUE(line.starts_with(path + ":")) << line;
      line.erase(0, path.size() + 1);
    }
    return found;
  }
  std::string write(const std::string& name, const std::string& text) {
    scratch_.write(name, text);
    return scratch_ / name;
  }
  static Profile load(const std::string& path) { return std::get<Profile>(load_profile(path)); }

  Scratch scratch_;
};

TEST_F(ProfileCheck, AGoodProfileHasNoFindings) {
  EXPECT_EQ(findings("[[entry]]\npath = \"*\"\ncomplete = [\"DONE\"]\n"
                     "[class]\nscratch = [\"tmp.*\"]\nlock = [\"*.lock\"]\nflight = [\"*.o\"]\n"),
            Lines());
}

TEST_F(ProfileCheck, ACompletingNameThatIsLeftOutCompletesNothing) {
  for (const char* name_class : {"scratch", "lock", "baton"}) {
    EXPECT_EQ(findings("[[entry]]\npath = \"*\"\ncomplete = [\"OTHER\", \"DONE*\"]\n[class]\n" +
                       std::string(name_class) + " = [\"D*\"]\n"),
              Lines{"5: entry.complete: 'DONE*' counts for nothing: its names are of class " +
                    std::string(name_class)});
  }
  EXPECT_EQ(
      findings("[[entry]]\npath = \"*\"\ncomplete_single = [\"x.tmp\"]\n"
               "[class]\nscratch = [\"*.tmp\"]\n"),
      Lines{
          "5: entry.complete_single: 'x.tmp' counts for nothing: its names are of class scratch"});
}

TEST_F(ProfileCheck, ACompletingNameMustBeAFileOfTheEntry) {
  EXPECT_EQ(
      findings("[[entry]]\npath = \"*\"\nfiles = [\".so\", \".o\"]\ncomplete = [\"*.json\"]\n"),
      Lines{"6: entry.complete: '*.json' matches no file of this entry"});
  EXPECT_EQ(findings("[[entry]]\npath = \"a*\"\nfiles = [\"\"]\npaths_in = [\"b*\"]\n"),
            Lines{"6: entry.paths_in: 'b*' matches no file of this entry"});
}

TEST_F(ProfileCheck, AScratchNameMayCompleteAnEntryOfFiles) {
  EXPECT_EQ(findings("[[entry]]\npath = \"*\"\nfiles = [\"-cache\", \"-time\"]\n"
                     "complete = [\"*-time\"]\n[class]\nscratch = [\"*-time\"]\n"),
            Lines());
}

TEST_F(ProfileCheck, ARuleBehindAWiderOneNeverApplies) {
  EXPECT_EQ(findings("[[entry]]\npath = \"*\"\n[[entry]]\npath = \"a/b\"\n"),
            Lines{"6: entry.path: 'a/b' never applies: earlier rules match all of its paths"});
  EXPECT_EQ(findings("[[entry]]\npath = \"*\"\nfiles = [\".so\"]\n[[entry]]\npath = \"*.so\"\n"
                     "files = [\"\"]\n"),
            Lines{"7: entry.path: '*.so' never applies: earlier rules match all of its paths"});
  EXPECT_EQ(findings("[[entry]]\npath = \"a/b\"\n[[entry]]\npath = \"*/*\"\n"), Lines());
}

TEST_F(ProfileCheck, ARuleOfDirectoriesAroundEarlierEntriesIsReported) {
  const auto pair = [&](const std::string& first, const std::string& second) {
    return findings("[[entry]]\npath = " + first + "\n[[entry]]\npath = " + second + "\n");
  };
  EXPECT_EQ(
      pair("\"**/ops/kept/*\"", "\"**/ops/*\""),
      Lines{
          "6: entry.path: '**/ops/*' matches directories that contain entries of line 4, such as 'ops/kept/a': "
          "such a directory is published and evicted as a whole, with these entries"});
  EXPECT_EQ(pair("\"kept/*\"\nfiles = [\"\"]", "\"*\"").size(), 1U) << "around entries of files";
  EXPECT_EQ(pair("\"**/ops/kept/*\"", "\"**/ops/[!k]*\""), Lines());
  EXPECT_EQ(pair("\"*/k*\"", "\"a\"").size(), 1U) << "around some of them";
  EXPECT_EQ(pair("\"a/*\"", "\"*/*\""), Lines()) << "entries of the same depth";
  EXPECT_EQ(pair("\"a/*\"", "\"**\"\nfiles = [\"\"]"), Lines()) << "files have nothing in them";
}

TEST_F(ProfileCheck, ARuleOfDirectoriesThatANarrowerRuleHidesIsNotReported) {
  const Lines found = findings(
      "[[entry]]\npath = \"a/b/*\"\n[[entry]]\npath = \"a/b\"\n[[entry]]\npath = \"a/*\"\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found.front().starts_with("6: entry.path: 'a/b' matches")) << found.front();
}

TEST_F(ProfileCheck, ARuleWhoseFilesCannotEndThatWayNeverApplies) {
  EXPECT_EQ(findings("[[entry]]\npath = \"*.cu\"\nfiles = [\".so\"]\n"),
            Lines{"4: entry.path: '*.cu' never applies: none of its paths has an ending of 'files'"});
  EXPECT_EQ(
      findings("[[entry]]\npath = \"*\"\nfiles = [\"\", \".body\"]\n"),
      Lines{"5: entry.files: '.body' is never used: '' comes before it and matches the same names"});
}

TEST_F(ProfileCheck, ARuleOfScratchNamesPublishesNothing) {
  EXPECT_EQ(
      findings("[[entry]]\npath = \"tmp/*\"\n[class]\nscratch = [\"tmp\"]\n"),
      Lines{"4: entry.path: nothing of 'tmp/*' is ever published: all of its names are of class "
            "scratch"});
}

TEST_F(ProfileCheck, ALockThatAnEntryIsBuiltUnderIsALockOrABaton) {
  const std::string entry = "[[entry]]\npath = \"*\"\nbuilt_under = \"locks/*.lock\"\n[class]\n";
  EXPECT_EQ(
      findings(entry + "lock = [\"*.lok\"]\n"),
      Lines{"5: entry.built_under: 'locks/*.lock' is not of class lock or baton: the daemon does "
            "not see its unlock, so the entry is never complete"});
  EXPECT_EQ(findings(entry + "lock = [\"locks/**\"]\n"), Lines());
  EXPECT_EQ(findings(entry + "baton = [\"*.lock\"]\n"), Lines());
}

TEST_F(ProfileCheck, ALockMayLieWhereItsEntryDoes) {
  const std::string entry =
      "[[entry]]\npath = \"**/ops/*\"\nbuilt_under = \"./tmp/*.lock\"\n[class]\n";
  EXPECT_EQ(findings(entry + "lock = [\"**/ops/tmp/*.lock\"]\n"), Lines());
  EXPECT_EQ(findings(entry + "lock = [\"tmp/*.lock\"]\n").size(), 1U);
}

TEST_F(ProfileCheck, AFlightNameOfAnotherClassIsNotWaitedFor) {
  for (const char* name_class : {"scratch", "lock", "baton", "shared"}) {
    EXPECT_EQ(findings("[[entry]]\npath = \"*\"\ncomplete = [\"DONE\"]\n[class]\n" +
                       std::string(name_class) + " = [\"*.o\"]\nflight = [\"*.so\", \"a.o\"]\n"),
              Lines{"8: class.flight: 'a.o' has no effect: its names are of class " +
                    std::string(name_class)});
  }
}

TEST_F(ProfileCheck, AFlightNameMustBeADirectoryEntryOrAFileOfOne) {
  const std::string entry = "[[entry]]\npath = \"kernels/*\"\ncomplete = [\"DONE\"]\n[class]\n";
  EXPECT_EQ(
      findings(entry + "flight = [\"other/*/a.o\"]\n"),
      Lines{"7: class.flight: 'other/*/a.o' is never waited for: no entry is a directory of such "
            "a name, or has such a file"});
  EXPECT_EQ(findings(entry + "flight = [\"other/*\"]\n").size(), 1U) << "no entry";
  EXPECT_EQ(findings(entry + "flight = [\"kernels/*\"]\n"), Lines()) << "the entry itself";
  EXPECT_EQ(findings(entry + "flight = [\"kernels/*/a.o\", \"*.so\"]\n"), Lines());
  EXPECT_EQ(findings("[[entry]]\npath = \"*\"\nfiles = [\"\"]\n[class]\nflight = [\"a\"]\n").size(),
            1U)
      << "an entry of files";
}

TEST_F(ProfileCheck, AFlightNeedsAnEntryThatTellsWhenItIsComplete) {
  EXPECT_EQ(
      findings("[[entry]]\npath = \"*\"\n[class]\nflight = [\"*.o\"]\n"),
      Lines{"6: class.flight: '*.o' cannot make other jobs wait until its entry is complete: nothing "
            "in the entry rule of line 4 says when that is"});
}

TEST_F(ProfileCheck, AGuessHasNeitherFlightNorSharedNames) {
  for (const char* name_class : {"flight", "shared"}) {
    EXPECT_EQ(findings("[class]\n" + std::string(name_class) + " = [\"*\"]\n", "guess"),
              Lines{"4: class." + std::string(name_class) +
                    ": '*' has no effect: the profile's evidence is guess"});
  }
}

TEST_F(ProfileCheck, AClassBehindAWiderOneHasNoEffect) {
  EXPECT_EQ(findings("[class]\nscratch = [\"*.tmp\"]\nlock = [\"a.tmp\", \"lock\"]\n"),
            Lines{"5: class.lock: 'a.tmp' has no effect: its names are of class scratch"});
  EXPECT_EQ(findings("[class]\nscratch = [\"old\"]\nbaton = [\"old/*/lock\"]\n").size(), 1U);
}

TEST_F(ProfileCheck, AVariableThatTurnsItselfOffIsReported) {
  EXPECT_EQ(
      findings("variable = \"X_DIR\"\nunless = [\"HOME_X\",\n\"X_DIR\"]\n"),
      Lines{"5: unless: 'X_DIR' is the profile's own variable: if it is set, the library "
            "redirects nothing to the mount"});
}

TEST_F(ProfileCheck, DefaultPathsAreAbsoluteAndPlain) {
  EXPECT_EQ(findings("default_paths = [\"/a\", \"cache\"]\n"),
            Lines{"3: default_paths: 'cache' must begin with / or ~/"});
  EXPECT_EQ(findings("default_paths = [\"~/.cache/../x\"]\n"),
            Lines{"3: default_paths: '~/.cache/../x' has a component '.' or '..': no path that a "
                  "program uses matches it"});
}

TEST_F(ProfileCheck, ErrorsThatAMountRejectsAreReportedWithTheirLine) {
  EXPECT_EQ(findings("colour = 1\n"), Lines{"3: unknown key 'colour'"});
  EXPECT_EQ(findings("mkstemp = 1\n"), Lines{"3: mkstemp: must be true or false"});
  EXPECT_EQ(findings("[[entry]]\npath = 7\n"), Lines{"4: entry.path: must be a string"});
}

TEST_F(ProfileCheck, AllFindingsAreInTheOrderOfTheirLines) {
  const Lines found = findings(
      "[[entry]]\npath = \"*\"\ncomplete = [\"x.tmp\"]\n[[entry]]\npath = \"a\"\n"
      "[class]\nscratch = [\"*.tmp\"]\nflight = [\"b.tmp\"]\n");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_TRUE(found[0].starts_with("5:") && found[1].starts_with("7:") &&
              found[2].starts_with("10:"));
}

TEST_F(ProfileCheck, TwoProfilesMustNotShareAnything) {
  const std::string first = write("a.toml",
                                  "name = \"a\"\nevidence = \"read\"\nvariable = \"DIR\"\n"
                                  "default_paths = [\"~/a\"]\n");
  const std::string second = write("b.toml",
                                   "evidence = \"read\"\nname = \"a\"\nvariable = \"DIR\"\n"
                                   "default_paths = [\"~/b\",\n \"~/a\"]\n");
  EXPECT_EQ(check_against(load(second), {load(first)}),
            (Lines{second + ":2: name: 'a' is the directory of the profile 'a' (" + first +
                       ") too: one of the two is not used",
                   second + ":3: variable: 'DIR' is the variable of the profile 'a' (" + first +
                       ") too: one of the two is not used",
                   second + ":5: default_paths: '~/a' is a default path of the profile 'a' (" +
                       first + ") too: one of the two is not used"}));
  EXPECT_EQ(check_against(load(second), {}), Lines());
}

}  // namespace
}  // namespace cacheshim
