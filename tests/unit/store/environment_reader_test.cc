// SPDX-License-Identifier: Apache-2.0
#include "store/sys/environment_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cacheshim {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kHostile = 31001;
constexpr uid_t kUser = 31002;
constexpr pid_t kBlocked = 10;
constexpr pid_t kPlain = 11;

class EnvironmentReaderTest : public ::testing::Test {
 protected:
  static constexpr auto kHour = std::chrono::milliseconds(1h);

  ~EnvironmentReaderTest() override { release(); }

  std::unique_ptr<EnvironmentReader> make(EnvironmentReader::Limits limits) const {
    return std::make_unique<EnvironmentReader>(
        [released = released_, reads = reads_](pid_t pid, const std::string&) -> Result<std::string> {
          ++*reads;
          if (pid == kBlocked) released.wait();
          return std::to_string(pid);
        },
        limits);
  }
  void release() {
    if (!std::exchange(is_released_, true)) release_.set_value();
  }

  std::promise<void> release_;
  const std::shared_future<void> released_ = release_.get_future();
  const std::shared_ptr<std::atomic<int>> reads_ = std::make_shared<std::atomic<int>>(0);
  bool is_released_ = false;
};

TEST_F(EnvironmentReaderTest, ReadsTheEnvironmentOfAProcess) {
  EnvironmentReader reader;
  for (const uid_t uid : {uid_t{0}, kUser}) {
    const auto block = reader.read(::getpid(), uid);
    ASSERT_TRUE(block);
    EXPECT_NE(block->find(std::string("PATH=") + std::getenv("PATH")), std::string::npos);
  }
  EXPECT_TRUE(reader.read(999'999'999, kUser).failed_with(ENOENT));
}

TEST_F(EnvironmentReaderTest, ABlockedReadDelaysNoOtherUser) {
  const auto reader = make({.read = 20ms, .exclusion = kHour});
  EXPECT_TRUE(reader->read(kBlocked, kHostile).failed_with(ETIMEDOUT));
  EXPECT_EQ(*reader->read(kPlain, kUser), "11");
  EXPECT_EQ(*reader->read(kPlain, 0), "11");
}

TEST_F(EnvironmentReaderTest, AUserWithABlockedReadIsExcludedAlsoAfterIt) {
  const auto reader = make({.read = 20ms, .exclusion = kHour});
  EXPECT_TRUE(reader->read(kBlocked, kHostile).failed_with(ETIMEDOUT));
  EXPECT_TRUE(reader->read(kPlain, kHostile).failed_with(ETIMEDOUT));
  release();
  // The test cannot detect when the blocked read has returned. If the user's exclusion wrongly ended at that time, it
  // would end during these rounds.
  for (int round = 0; round < 100; ++round) {
    EXPECT_TRUE(reader->read(kPlain, kHostile).failed_with(ETIMEDOUT));
    ::usleep(1000);
  }
  EXPECT_EQ(*reads_, 1);
}

TEST_F(EnvironmentReaderTest, TheExclusionLastsAsLongAsTheRead) {
  const auto reader = make({.read = 100ms, .exclusion = 0ms});
  EXPECT_TRUE(reader->read(kBlocked, kHostile).failed_with(ETIMEDOUT));
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < 100; ++call) {
    EXPECT_TRUE(reader->read(kPlain, kHostile).failed_with(ETIMEDOUT));
  }
  // If each of the 100 calls waited, they would take 10 s.
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST_F(EnvironmentReaderTest, TheExclusionEnds) {
  const auto reader = make({.read = 20ms, .exclusion = 1ms});
  EXPECT_TRUE(reader->read(kBlocked, kHostile).failed_with(ETIMEDOUT));
  release();
  auto block = reader->read(kPlain, kHostile);
  for (int round = 0; round < 1000 && !block; ++round) {
    ::usleep(1000);
    block = reader->read(kPlain, kHostile);
  }
  EXPECT_TRUE(block);
}

TEST_F(EnvironmentReaderTest, OneThreadReadsForAUserAtATime) {
  const auto reader = make({.read = 100ms, .exclusion = kHour});
  std::vector<std::future<Result<std::string>>> calls;
  for (int call = 0; call < 8; ++call) {
    calls.push_back(std::async(std::launch::async, [&] { return reader->read(kBlocked, kHostile); }));
  }
  for (auto& call : calls) EXPECT_TRUE(call.get().failed_with(ETIMEDOUT));
  EXPECT_EQ(*reads_, 1);
}

TEST_F(EnvironmentReaderTest, ManyCallsOfAUserAreAllAnswered) {
  const auto reader = make({.read = kHour, .exclusion = kHour});
  std::vector<std::future<Result<std::string>>> calls;
  for (int call = 0; call < 16; ++call) {
    calls.push_back(std::async(std::launch::async, [&] { return reader->read(kPlain, kUser); }));
  }
  for (auto& call : calls) EXPECT_EQ(*call.get(), "11");
  EXPECT_EQ(*reads_, 16);
}

TEST_F(EnvironmentReaderTest, TheNumberOfThreadsIsLimited) {
  const auto reader = make({.read = 20ms, .exclusion = kHour, .threads = 2});
  EXPECT_TRUE(reader->read(kBlocked, kHostile).failed_with(ETIMEDOUT));
  EXPECT_TRUE(reader->read(kBlocked, kHostile + 100).failed_with(ETIMEDOUT));
  EXPECT_TRUE(reader->read(kPlain, kUser).failed_with(ETIMEDOUT));
  EXPECT_EQ(*reader->read(kPlain, 0), "11");
  EXPECT_EQ(*reads_, 3);
}

}  // namespace
}  // namespace cacheshim
