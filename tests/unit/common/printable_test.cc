// SPDX-License-Identifier: Apache-2.0
#include "common/printable_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace cacheshim {
namespace {

TEST(Printable, LeavesNamesUnchanged) {
  for (const char* text : {"", "triton/KEY/k.cubin", "a b\\x1b", "/run/cacheshim/my\\x2dcache",
                           "gr\xC3\xBC\xC3\x9F", "\xE7\xBC\x93\xE5\xAD\x98", "\xF0\x9F\x9A\x80"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, EscapesWhatControlsATerminal) {
  EXPECT_EQ(printable("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("back\bspace\x7f"), "back\\x08space\\x7f");
  EXPECT_EQ(printable("\xC2\23331m"), "\\xc2\\x9b31m");  // CSI as one character
  EXPECT_EQ(printable("\23331m"), "\\x9b31m");           // CSI as one byte
}

TEST(Printable, EscapesWhatEndsALine) {
  EXPECT_EQ(printable("a\nb\rc\td"), "a\\x0ab\\x0dc\\x09d");
  EXPECT_EQ(printable("a\xE2\x80\250b"), "a\\xe2\\x80\\xa8b");  // U+2028, a line separator
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, EscapesWhatChangesTheOrder) {
  EXPECT_EQ(printable("\xE2\x80\256gpj.exe"), "\\xe2\\x80\\xaegpj.exe");  // U+202E
  EXPECT_EQ(printable("\xD8\234x"), "\\xd8\\x9cx");                       // U+061C
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xC0\x9B"), "\\xc0\\x9b");           // an overlong form
  EXPECT_EQ(printable("\xE0\x82\x9B"), "\\xe0\\x82\\x9b");  // an overlong form of U+009B
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xE7\xBC"), "\\xe7\\xbc");  // a truncated character
  EXPECT_EQ(printable("\xE7\x1b"), "\\xe7\\x1b");
}

TEST(Printable, StopsBeforeACharacterThatDoesNotFit) {
  char out[8];
  EXPECT_EQ(write_printable("abc\033d", out, 7), 7u);
  EXPECT_EQ(write_printable("abc\033d", out, 6), 3u);
  EXPECT_EQ(write_printable("\xC3\xBC", out, 1), 0u);
}

TEST(PrintableLines, KeepNewlines) {
  EXPECT_EQ(printable_lines("a\x1b\n\nb\r\n"), "a\\x1b\n\nb\\x0d\n");
  EXPECT_EQ(printable_lines("a"), "a");
}

TEST(PrintableJson, HasTheSameValues) {
  const std::string name = "\x1b[2J\n\x7f\xC2\x9B\xE2\x80\xAE\xC3\xBC\"\\";
  const std::string text = printable_json(nlohmann::json(name).dump());
  EXPECT_EQ(nlohmann::json::parse(text).get<std::string>(), name);
  EXPECT_EQ(printable(text), text);
}

TEST(PrintableJson, KeepsItsOwnLinesAndReplacesInvalidBytes) {
  EXPECT_EQ(printable_json("{\n  \"a\": 1\n}\n"), "{\n  \"a\": 1\n}\n");
  EXPECT_EQ(printable_json("\"\xff\""), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(printable_json("\"\x1b\x9b\""), "\"\\u001b\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace cacheshim
