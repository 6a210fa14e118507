// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "common/unique_fd.h"
#include "store/sys/process.h"
#include "store/sys/process_origin.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

TEST(ProcessTest, ALineageBeginsWithTheProcessAndGoesUp) {
  const Child child;
  const Lineage own = lineage_of(::getpid());
  const Lineage lineage = lineage_of(child.pid());
  ASSERT_GE(lineage.size(), 2U);
  EXPECT_EQ(lineage[0].pid, child.pid());
  EXPECT_EQ(lineage[1], own.front());
  EXPECT_TRUE(contains(lineage, own.front()));
  EXPECT_FALSE(contains(own, lineage.front()));
}

TEST(ProcessTest, AnOpenFileIsFoundByTheEndOfItsDirectorysPath) {
  const Scratch scratch;
  scratch.write("x/d2/mnt/x/d/file", "");
  const UniqueFd file(::open((scratch / "x/d2/mnt/x/d/file").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(has_open_in(::getpid(), "/x/d"));
  EXPECT_TRUE(has_open_in(::getpid(), "/mnt/x"));
  EXPECT_FALSE(has_open_in(::getpid(), "/mnt/x/d2"));
}

TEST(ProcessTest, AThreadBelongsToItsProcess) {
  Lineage lineage;
  std::jthread([&] { lineage = lineage_of(::gettid()); }).join();
  EXPECT_EQ(lineage, lineage_of(::getpid()));
}

TEST(ProcessTest, AnExitedOrUnknownProcessHasNoLineage) {
  Child child;
  const pid_t pid = child.pid();
  child.kill();
  EXPECT_TRUE(lineage_of(pid).empty());
  EXPECT_TRUE(lineage_of(0).empty());
}

TEST(ProcessTest, TheEndOfAWatchedProcessIsReported) {
  Child child;
  const UniqueFd watched = watch_process(lineage_of(child.pid()).front());
  ASSERT_TRUE(watched);
  pollfd end{watched.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 0), 0);
  child.kill();
  EXPECT_EQ(::poll(&end, 1, 10'000), 1);
}

TEST(ProcessTest, AnotherProcessWithTheNumberIsNotWatched) {
  const Child child;
  Process process = lineage_of(child.pid()).front();
  process.start_time += 1;
  EXPECT_FALSE(watch_process(process));
}

TEST(ProcessTest, AStoppedProcessIsDetected) {
  const Child child;
  const Process process = lineage_of(child.pid()).front();
  EXPECT_FALSE(is_stopped(process));
  child.stop();
  EXPECT_TRUE(is_stopped(process));
}

TEST(ProcessTest, LinesOfAStatusAreFoundByTheirName) {
  const std::string status = "Name:\tTgid:\nTgid:\t 41\nGroups:\t7 8 \nLast:";
  EXPECT_EQ(status_field(status, "Tgid"), "41");
  EXPECT_EQ(status_field(status, "Groups"), "7 8 ");
  EXPECT_EQ(status_field(status, "Last"), "");
  EXPECT_EQ(status_field(status, "gid"), "");
}

TEST(ProcessTest, FieldsBehindACommandWithBlanksAndParenthesesAreFound) {
  EXPECT_EQ(stat_field("7 (a) b) (c) S 41 42", 4), 41U);
  EXPECT_EQ(stat_field("7 (a) S 41", 5), std::nullopt);
  EXPECT_EQ(stat_field("", 4), std::nullopt);
}

}  // namespace
}  // namespace cacheshim
