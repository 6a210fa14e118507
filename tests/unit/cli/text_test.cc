// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cli/configuration/units.h"
#include "cli/progress.h"
#include "cli/text.h"

namespace cacheshim::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Duration, IsSecondsOrANumberWithItsUnit) {
  EXPECT_EQ(parse_duration("0"), seconds(0));
  EXPECT_EQ(parse_duration("90"), seconds(90));
  EXPECT_EQ(parse_duration("90s"), seconds(90));
  EXPECT_EQ(parse_duration("10m"), seconds(600));
  EXPECT_EQ(parse_duration("2h"), seconds(7200));
  EXPECT_EQ(parse_duration("7d"), seconds(7 * 86400));
  EXPECT_EQ(parse_duration("1w"), seconds(7 * 86400));
}

TEST(Duration, RefusesEverythingElse) {
  for (const char* text : {"", "m", "-1", "-1m", "1.5h", "1 h", "1hh", "1x", "99999999999999999999",
                           "9223372036854775807w"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(Timeout, IsADurationWithAFractionOrInMilliseconds) {
  using std::chrono::milliseconds;
  EXPECT_EQ(parse_timeout("0"), milliseconds(0));
  EXPECT_EQ(parse_timeout("0.1"), milliseconds(100));
  EXPECT_EQ(parse_timeout("1s"), milliseconds(1000));
  EXPECT_EQ(parse_timeout("500ms"), milliseconds(500));
  EXPECT_EQ(parse_timeout("1.5m"), milliseconds(90000));
  EXPECT_EQ(parse_timeout("1w"), milliseconds(7 * 86400000));
}

TEST(Timeout, RefusesEverythingElse) {
  for (const char* text :
       {"", "s", "-1", "1x", "1 s", "1sec", "nan", "inf", "1e300", "99999w", "0x10"}) {
    EXPECT_EQ(parse_timeout(text), std::nullopt) << text;
    EXPECT_EQ(timeout_problem(text),
              "'" + std::string(text) +
                  "' is no duration; give seconds, or a number with a unit: 500ms, 1.5s, 10m, 2h");
  }
}

TEST(Duration, IsWrittenWithTwoUnitsAtMost) {
  EXPECT_EQ(format_duration(seconds(0)), "0 s");
  EXPECT_EQ(format_duration(seconds(59)), "59 s");
  EXPECT_EQ(format_duration(seconds(185)), "3 min 5 s");
  EXPECT_EQ(format_duration(seconds(7200)), "2 h");
  EXPECT_EQ(format_duration(seconds(7205)), "2 h");
  EXPECT_EQ(format_duration(seconds(90061)), "1 d 1 h");
  EXPECT_EQ(format_duration(seconds(15 * 86400)), "15 d");
}

TEST(Size, IsInPowersOf1024) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_size((1U << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_size(5ULL << 40), "5.0 TiB");
}

TEST(Count, HasItsPlural) {
  EXPECT_EQ(format_count(0, "entry", "entries"), "0 entries");
  EXPECT_EQ(format_count(1, "entry", "entries"), "1 entry");
}

TEST(Table, AlignsColumnsAndLeavesNoTrailingBlanks) {
  EXPECT_EQ(format_table({{"A", "LONG", "C"}, {"abc", "x", "y"}}), "A    LONG  C\nabc  x     y\n");
}

TEST(Table, MakesItsCellsPrintable) {
  EXPECT_EQ(format_table({{"a\x1b[2J\nb", "c"}, {"d", "\233e"}}),
            "a\\x1b[2J\\x0ab  c\nd              \\x9be\n");
}

TEST(Time, ZeroIsNone) { EXPECT_EQ(format_time(0), "-"); }

class ProgressText : public testing::Test {
 protected:
  Progress make(bool terminal) {
    return Progress([this](std::string_view text) { text_ += text; }, terminal, start_);
  }
  Progress::Clock::time_point after(milliseconds time) const { return start_ + time; }

  Progress::Clock::time_point start_ = Progress::Clock::now();
  std::string text_;
};

TEST_F(ProgressText, PrintsNothingInTheFirstSecond) {
  {
    Progress progress = make(true);
    progress.update("work", 1, 2, after(milliseconds(999)));
  }
  EXPECT_EQ(text_, "");
}

TEST_F(ProgressText, RewritesItsLineOnATerminalAndClearsIt) {
  Progress progress = make(true);
  progress.update("work", 1, 4, after(milliseconds(1000)));
  progress.update("work", 2, 4, after(milliseconds(1100)));  // too soon after the previous update
  progress.update("work", 3, 4, after(milliseconds(1300)));
  EXPECT_EQ(text_, "\r\033[Kcacheshim: work: 1 of 4\r\033[Kcacheshim: work: 3 of 4");
  text_.clear();
  progress.finish();
  progress.finish();
  EXPECT_EQ(text_, "\r\033[K");
}

TEST_F(ProgressText, WritesAFewLinesElsewhere) {
  Progress progress = make(false);
  progress.update("work", 5, 0, after(seconds(1)));
  progress.update("work", 6, 0, after(seconds(5)));
  progress.update("rest", 0, 0, after(seconds(11)));
  EXPECT_EQ(text_, "cacheshim: work: 5\ncacheshim: rest …\n");
  progress.finish();
  EXPECT_EQ(text_, "cacheshim: work: 5\ncacheshim: rest …\n");
}

}  // namespace
}  // namespace cacheshim::cli
