// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
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

TEST_F(FileTierTest, ObjectsComeBackUnchanged) {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += static_cast<char>(i * 7);
  for (const std::string& key : unusual_keys()) {
    for (const std::string& object : {std::string(), bytes + key}) {
      EXPECT_EQ(tier_.put_if_absent(key, object), PutOutcome::kStored) << key;
      EXPECT_EQ(other_.get(key, kNoLimit), object) << key;
      EXPECT_TRUE(tier_.remove(key));
    }
  }
  EXPECT_TRUE(files("tmp").empty());
}

TEST_F(FileTierTest, AnAbsentKeyGivesNothing) {
  EXPECT_EQ(tier_.get("absent", kNoLimit), std::nullopt);
  EXPECT_FALSE(tier_.remove("absent"));
  EXPECT_TRUE(fs::is_empty(path_));
  (void)tier_.put_if_absent("present", "x");
  EXPECT_EQ(tier_.get("absent", kNoLimit), std::nullopt);
  EXPECT_FALSE(tier_.remove("absent"));
}

TEST_F(FileTierTest, RemoveReportsWhetherTheKeyExisted) {
  (void)tier_.put_if_absent("key", "x");
  EXPECT_TRUE(other_.remove("key"));
  EXPECT_FALSE(other_.remove("key"));
  EXPECT_EQ(tier_.get("key", kNoLimit), std::nullopt);
}

TEST_F(FileTierTest, AnObjectOverTheLimitIsRefused) {
  (void)tier_.put_if_absent("key", std::string(1000, 'x'));
  EXPECT_TRUE(tier_.get("key", 1000));
  EXPECT_TRUE(
      error_of([&] { return tier_.get("key", 999); }).starts_with("refused: cannot get 'key' in "));
}

TEST_F(FileTierTest, InvalidKeysAndOwnersAreRefused) {
  for (const std::string& key : {std::string(), std::string("a\nb"), std::string(1025, 'x')}) {
    EXPECT_TRUE(error_of([&] { return tier_.put_if_absent(key, ""); }).starts_with("refused: "));
    EXPECT_TRUE(error_of([&] { return tier_.get(key, 1); }).starts_with("refused: "));
  }
  EXPECT_TRUE(
      error_of([&] { return tier_.acquire("key", "a\nb", kTtl); }).ends_with("invalid owner"));
}

TEST_F(FileTierTest, TheFirstOfEightWritersWins) {
  for (int round = 0; round < 20; ++round) {
    const std::string key = "key" + std::to_string(round);
    std::atomic<int> stored{0};
    std::atomic<int> winner{-1};
    {
      std::vector<std::jthread> threads;
      for (int writer = 0; writer < 8; ++writer) {
        threads.emplace_back([&, writer] {
          FileTier own = make();
          const std::string object(10'000, static_cast<char>('a' + writer));
          if (own.put_if_absent(key, object) == PutOutcome::kStored) {
            ++stored;
            winner = writer;
          }
          const auto seen = own.get(key, kNoLimit);
          EXPECT_TRUE(seen && *seen == std::string(10'000, seen->front()));
        });
      }
    }
    EXPECT_EQ(stored, 1);
    EXPECT_EQ(tier_.get(key, kNoLimit), std::string(10'000, static_cast<char>('a' + winner)));
  }
  EXPECT_TRUE(files("tmp").empty());
}

TEST_F(FileTierTest, TheSecondOfTwoWritersThatBothFoundNothingLoses) {
  on_link = [&](const auto& link) {
    EXPECT_EQ(other_.put_if_absent("key", "first"), PutOutcome::kStored);
    return link();
  };
  EXPECT_EQ(tier_.put_if_absent("key", "second"), PutOutcome::kExists);
  EXPECT_EQ(tier_.get("key", kNoLimit), "first");
  EXPECT_TRUE(files("tmp").empty());
}

TEST_F(FileTierTest, ALinkWhoseReplyWasLostCountsAsStored) {
  on_link = [](const auto& link) { return link() == 0 ? fail_with(EEXIST) : 0; };
  EXPECT_EQ(tier_.put_if_absent("key", "x"), PutOutcome::kStored);
  EXPECT_TRUE(files("tmp").empty());
  on_link = [](const auto& link) { return link() == 0 ? fail_with(EEXIST) : 0; };
  EXPECT_EQ(tier_.acquire("key", "me", kTtl), 1U);
}

TEST_F(FileTierTest, AsksTheServerBeforeANameCountsAsAbsent) {
  (void)tier_.put_if_absent("key", "x");
  const std::string file = files("objects").front();
  fs::rename(file, scratch_ / "unknown to this client");
  EXPECT_EQ(tier_.get("key", kNoLimit), std::nullopt);
  before_statx = [&] { fs::rename(scratch_ / "unknown to this client", file); };
  EXPECT_EQ(tier_.get("key", kNoLimit), "x");
}

TEST_F(FileTierTest, AKeyWithTheFileNameOfAnotherCountsAsAbsent) {
  const std::string key(300, 'x');
  (void)tier_.put_if_absent(key, "mine");
  const std::string file = files("objects").front();
  std::string content = scratch_.read("shared" + file.substr(path_.size()));
  content.replace(content.find('x'), 1, "y");
  scratch_.write("shared" + file.substr(path_.size()), content);
  EXPECT_EQ(tier_.get(key, kNoLimit), std::nullopt);
  EXPECT_FALSE(tier_.remove(key));
  EXPECT_TRUE(error_of([&] {
                return tier_.put_if_absent(key, "mine");
              }).ends_with("another key has the same file name"));
  EXPECT_TRUE(fs::exists(file));
  EXPECT_TRUE(tier_.keys_since("", 10).keys.empty());
}

TEST_F(FileTierTest, ATruncatedFileIsRefusedUntilItIsRemoved) {
  (void)tier_.put_if_absent("key", "0123456789");
  for (const unsigned lost : {1U, 11U, 30U}) {
    const std::string file = files("objects").front();
    fs::resize_file(file, fs::file_size(file) - lost);
    EXPECT_TRUE(
        error_of([&] { return tier_.get("key", kNoLimit); }).ends_with("its file is damaged"));
    EXPECT_TRUE(error_of([&] { return tier_.put_if_absent("key", ""); }).starts_with("refused: "));
  }
  EXPECT_TRUE(tier_.remove("key"));
  EXPECT_EQ(tier_.put_if_absent("key", ""), PutOutcome::kStored);
}

TEST_F(FileTierTest, TheModeOfTheDirectoryAppliesToAllThatIsCreated) {
  ASSERT_EQ(::chmod(path_.c_str(), 0770), 0);
  const mode_t umask = ::umask(077);
  (void)tier_.put_if_absent("key", "x");
  (void)tier_.acquire("key", "me", kTtl);
  (void)::umask(umask);
  int checked = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    EXPECT_EQ(static_cast<int>(entry.status().permissions()), entry.is_directory() ? 0770 : 0660)
        << entry.path();
    ++checked;
  }
  EXPECT_EQ(checked, 8);
}

TEST_F(FileTierTest, OldTemporaryFilesAreRemovedOnceAnHour) {
  (void)other_.put_if_absent("key", "x");
  const auto leave = [&](const std::string& name, std::chrono::seconds age) {
    scratch_.write("shared/tmp/" + name, "");
    set_age(path_ + "/tmp/" + name, age);
  };
  leave("old", 25h);
  leave("young", 23h);
  (void)tier_.put_if_absent("key", "x");
  EXPECT_EQ(files("tmp"), std::vector{path_ + "/tmp/young"});
  leave("old", 25h);
  (void)tier_.put_if_absent("key", "x");
  EXPECT_EQ(files("tmp").size(), 2U);
}

}  // namespace
}  // namespace cacheshim::remote
