// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/shim/stage.h"

// Runs 64 threads that make calls at the same time (storm_program.cc): without a tool, under
// ThreadSanitizer and under Valgrind. Each run takes STORM_SECONDS, by default 2 s.
namespace cacheshim {
namespace {

class ShimStorm : public testing::Test {
 protected:
  void expect_silence(std::vector<std::string> command) {
    const char* const seconds = std::getenv("STORM_SECONDS");
    for (const std::string& word : {stage_.default_directory(), std::string("64"),
                                    std::string(seconds == nullptr ? "2" : seconds)}) {
      command.push_back(word);
    }
    const Ended ended = stage_.run(command);
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(ended.err, "");
    EXPECT_NE(ended.out.find(" rounds\n"), std::string::npos) << ended.out;
    RecordProperty("rounds", ended.out);
    EXPECT_FALSE(exists(stage_.path("home/.triton")));
  }
  Stage stage_;
};

TEST_F(ShimStorm, Plain) { expect_silence({std::getenv("CACHESHIM_TEST_STORM")}); }

// Both the library and the program are built with ThreadSanitizer.
TEST_F(ShimStorm, UnderThreadSanitizer) {
  stage_.environment["LD_PRELOAD"] = std::getenv("CACHESHIM_TEST_THREADS_LIBRARY");
  expect_silence({std::getenv("CACHESHIM_TEST_STORM_THREADS")});
}

TEST_F(ShimStorm, UnderValgrind) {
  if (!exists("/usr/bin/valgrind")) GTEST_SKIP() << "valgrind is not installed";
  expect_silence({"/usr/bin/valgrind", "--quiet", "--error-exitcode=9", "--leak-check=no",
                  "--child-silent-after-fork=yes", std::getenv("CACHESHIM_TEST_STORM")});
}

}  // namespace
}  // namespace cacheshim
