// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "remote/engines/file_tier.h"
#include "tests/unit/support/file_tier_fixture.h"
#include "tests/unit/support/replaced_calls.h"

namespace cacheshim::remote {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// Reads all pages from `position` on, and adds their keys to `keys`. Returns the last page's position.
std::string read_pages(FileTier& tier, std::string position, std::size_t most,
                       std::multiset<std::string>& keys) {
  for (;;) {
    const CataloguePage page = tier.keys_since(position, most);
    EXPECT_LE(page.keys.size(), most);
    keys.insert(page.keys.begin(), page.keys.end());
    position = page.position;
    if (page.is_last) return position;
  }
}

std::multiset<std::string> all_keys(FileTier& tier, const std::string& position) {
  std::multiset<std::string> keys;
  (void)read_pages(tier, position, 1000, keys);
  return keys;
}

TEST_F(FileTierTest, AnEmptyDirectoryHasNoKeys) {
  const CataloguePage page = tier_.keys_since("", 10);
  EXPECT_TRUE(page.keys.empty());
  EXPECT_TRUE(page.is_last);
  (void)tier_.put_if_absent("key", "x");
  EXPECT_EQ(all_keys(tier_, page.position), std::multiset<std::string>{"key"});
}

TEST_F(FileTierTest, PagesContainEveryKeyOnce) {
  std::multiset<std::string> expected;
  for (const std::string& key : unusual_keys()) expected.insert(key);
  for (int i = 0; i < 200; ++i) expected.insert("family/key" + std::to_string(i));
  for (const std::string& key : expected) (void)tier_.put_if_absent(key, "x");
  (void)tier_.acquire("leased only", "me", kTtl);
  scratch_.write("shared" + files("objects").front().substr(path_.size()) + ".bak",
                 "not an object");
  scratch_.write("shared/objects/.nfs0001", "not a shard");
  scratch_.write("shared/objects/zz", "not a shard");
  for (const unsigned most : {1U, 7U, 1000U}) {
    std::multiset<std::string> keys;
    (void)read_pages(tier_, "", most, keys);
    EXPECT_EQ(keys, expected) << most;
  }
  FileTier hurried(path_, 0ms);  // every page ends after one file
  std::multiset<std::string> keys;
  (void)read_pages(hurried, "", 1000, keys);
  EXPECT_EQ(keys, expected);
}

TEST_F(FileTierTest, LaterPagesContainOnlyNewKeys) {
  FileTier tier = make(50ms);
  for (int i = 0; i < 300; ++i) (void)tier.put_if_absent("old" + std::to_string(i), "x");
  std::multiset<std::string> keys;
  std::string position = read_pages(tier, "", 1000, keys);
  EXPECT_EQ(keys.size(), 300U);
  const auto begin = Clock::now();
  do {
    keys.clear();
    position = read_pages(tier, position, 1000, keys);
  } while (!keys.empty() && Clock::now() - begin < 10s);
  EXPECT_TRUE(keys.empty());
  stat_calls = 0;
  EXPECT_TRUE(all_keys(tier, position).empty());
  EXPECT_LT(stat_calls, 10);
  (void)other_.put_if_absent("new", "x");
  EXPECT_EQ(all_keys(tier, position), std::multiset<std::string>{"new"});
}

TEST_F(FileTierTest, AWriterThatWasStoppedBeforeItsLinkIsInALaterPage) {
  FileTier tier = make(0ms);
  std::string position;
  on_link = [&](const auto& link) {
    set_age(files("tmp").front(), 3600s);
    std::multiset<std::string> keys;
    position = read_pages(tier, "", 10, keys);
    EXPECT_TRUE(keys.empty());
    return link();
  };
  (void)other_.put_if_absent("key", "x");
  EXPECT_EQ(all_keys(tier, position), std::multiset<std::string>{"key"});
}

TEST_F(FileTierTest, AnObjectThatIsStoredBehindThePageIsInTheNextSweep) {
  for (int i = 0; i < 50; ++i) (void)tier_.put_if_absent(std::to_string(i), "x");
  FileTier tier = make(0ms);
  std::multiset<std::string> keys;
  CataloguePage page = tier.keys_since("", 25);
  EXPECT_FALSE(page.is_last);
  for (int i = 50; i < 100; ++i) (void)tier_.put_if_absent(std::to_string(i), "x");
  const std::string position = read_pages(tier, page.position, 25, keys);
  (void)read_pages(tier, position, 25, keys);
  keys.insert(page.keys.begin(), page.keys.end());
  for (int i = 0; i < 100; ++i) EXPECT_GE(keys.count(std::to_string(i)), 1U) << i;
}

TEST_F(FileTierTest, PagesLoseNothingWhileOthersWrite) {
  constexpr int kWriters = 4;
  constexpr int kEach = 75;
  std::atomic<int> running{kWriters};
  std::vector<std::jthread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      FileTier own = make();
      for (int i = 0; i < kEach; ++i) {
        (void)own.put_if_absent(std::to_string(writer) + "/" + std::to_string(i), "x");
      }
      --running;
    });
  }
  FileTier tier = make(20ms);
  std::multiset<std::string> keys;
  std::string position;
  for (bool is_end = false; !is_end;) {
    is_end = running == 0;
    position = read_pages(tier, position, 10, keys);
  }
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), std::size_t{kWriters * kEach});
}

TEST_F(FileTierTest, UnusablePositionsCountAsTheBeginning) {
  (void)tier_.put_if_absent("key", "x");
  for (const std::string position : {"abc", "1:2", "-1:0::", "1:x::", "8000000000000000000:0::"}) {
    EXPECT_EQ(all_keys(tier_, position), std::multiset<std::string>{"key"}) << position;
  }
}

TEST_F(FileTierTest, ASlowLinkTouchesItsShard) {
  timespec linked{};
  on_link = [&](const auto& link) {
    const int result = link();
    struct stat st {};
    EXPECT_EQ(::stat(files("objects").front().c_str(), &st), 0);
    linked = st.st_ctim;
    std::this_thread::sleep_for(2100ms);
    return result;
  };
  (void)tier_.put_if_absent("key", "x");
  struct stat shard {};
  ASSERT_EQ(::stat(fs::path(files("objects").front()).parent_path().c_str(), &shard), 0);
  EXPECT_GE(shard.st_ctim.tv_sec, linked.tv_sec + 2);
}

}  // namespace
}  // namespace cacheshim::remote
