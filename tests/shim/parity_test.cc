// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <sstream>

#include "tests/shim/stage.h"

// Verifies that each interposed call on a routed path has the same results as libc's call on a
// plain directory.
namespace cacheshim {
namespace {

enum class Spelling { kDefaultPath, kMountPath, kViewPath, kDefaultWithoutJob, kBoundView };

class ShimParity : public testing::TestWithParam<std::tuple<const char*, Spelling>> {
 protected:
  Stage stage_;

  std::string prepare(Spelling spelling) {
    switch (spelling) {
      case Spelling::kDefaultPath:
        return stage_.default_directory();
      case Spelling::kMountPath:
        return stage_.mount() + "/triton";
      case Spelling::kViewPath:
        return stage_.view();
      case Spelling::kDefaultWithoutJob:
        stage_.environment["CACHESHIM_JOB"] = "";
        return stage_.default_directory();
      case Spelling::kBoundView:
        stage_.mount_as("/.jobs/j1");
        return stage_.default_directory();
    }
    return "";
  }
};

// Returns the first line that differs and up to 12 lines before it, or "" if the texts are equal.
std::string first_difference(const std::string& got, const std::string& wanted) {
  std::istringstream got_lines(got);
  std::istringstream wanted_lines(wanted);
  std::deque<std::string> before;
  std::string got_line;
  std::string wanted_line;
  for (;;) {
    const bool more = !!std::getline(got_lines, got_line);
    const bool wants_more = !!std::getline(wanted_lines, wanted_line);
    if (!more && !wants_more) return "";
    if (more != wants_more || got_line != wanted_line) break;
    before.push_back(got_line + "\n");
    if (before.size() > 12) before.pop_front();
  }
  std::string text;
  for (const std::string& line : before) text += line;
  return text + "got:    " + got_line + "\nwanted: " + wanted_line + "\n";
}

TEST_P(ShimParity, EveryCallHasItsNativeResult) {
  const auto& [mode, spelling] = GetParam();
  const std::string calls = std::getenv("CACHESHIM_TEST_CALLS");
  const std::string routed = prepare(spelling);
  // Gives both paths the same length, because some calls return the length.
  std::string native = stage_.path("n");
  native.resize(std::max(native.size(), routed.size()), 'n');
  std::filesystem::create_directory(native);

  stage_.environment["TEST_LIBRARIES"] = std::getenv("CACHESHIM_TEST_LIBRARIES");
  const Ended shimmed = stage_.run({calls, mode, routed});
  stage_.environment["LD_PRELOAD"] = "";
  const Ended plain = stage_.run({calls, mode, native});

  EXPECT_EQ(plain.status, 0);
  EXPECT_EQ(plain.err, "");
  const std::size_t missing = std::min(plain.out.find("no call of"), plain.out.size());
  EXPECT_EQ(plain.out.substr(missing), "");
  EXPECT_NE(plain.out.find("by its RPATH\n  leaf = 42\n"), std::string::npos);
  EXPECT_EQ(shimmed.status, 0);
  EXPECT_EQ(shimmed.err, "");
  EXPECT_EQ(first_difference(shimmed.out, plain.out), "");
  EXPECT_EQ(describe_tree(stage_.view()), describe_tree(native));
  EXPECT_FALSE(exists(stage_.path("home/.triton")));
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, ShimParity,
    testing::Combine(testing::Values("here", "thread", "fork", "exec", "spawn"),
                     testing::Values(Spelling::kDefaultPath, Spelling::kMountPath)));
INSTANTIATE_TEST_SUITE_P(Spellings, ShimParity,
                         testing::Combine(testing::Values("here"),
                                          testing::Values(Spelling::kViewPath,
                                                          Spelling::kDefaultWithoutJob,
                                                          Spelling::kBoundView)));

}  // namespace
}  // namespace cacheshim
