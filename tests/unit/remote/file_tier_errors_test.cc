// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remote/engines/file_tier.h"
#include "tests/unit/support/file_tier_fixture.h"
#include "tests/unit/support/replaced_calls.h"

namespace cacheshim::remote {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TEST_F(FileTierTest, AMissingDirectoryIsUnavailableAndIsNotCreated) {
  fs::remove(path_);
  const std::vector<std::function<void()>> calls = {[&] { (void)tier_.get("key", 1); },
                                                    [&] { (void)tier_.put_if_absent("key", "x"); },
                                                    [&] { (void)tier_.remove("key"); },
                                                    [&] { (void)tier_.acquire("key", "me", kTtl); },
                                                    [&] { (void)tier_.renew("key", "me", kTtl); },
                                                    [&] { tier_.release("key", "me"); },
                                                    [&] { tier_.wait("key", 1ms); },
                                                    [&] { (void)tier_.keys_since("", 1); }};
  for (const auto& call : calls) {
    const std::string error = error_of([&] { return call(), 0; });
    EXPECT_TRUE(error.starts_with("unavailable: cannot ")) << error;
    EXPECT_TRUE(error.ends_with(" in the shared directory '" + path_ +
                                "': the directory does not exist; is its file system mounted?"))
        << error;
  }
  EXPECT_FALSE(fs::exists(path_));
  fs::create_directory(path_);
  EXPECT_EQ(tier_.put_if_absent("key", "x"), PutOutcome::kStored);
}

TEST_F(FileTierTest, AnErrorThatStaysEndsTheCallAtItsTimeout) {
  FileTier tier(path_, 1000ms);
  std::function<int(const std::function<int()>&)> fail = [&](const auto&) {
    on_link = fail;
    return fail_with(ESTALE);
  };
  on_link = fail;
  const auto begin = Clock::now();
  EXPECT_TRUE(
      error_of([&] { return tier.put_if_absent("key", "x"); }).starts_with("unavailable: "));
  EXPECT_LT(Clock::now() - begin, 9s);
  EXPECT_TRUE(files("tmp").empty());
  on_link = [](const auto&) { return fail_with(ESTALE); };
  EXPECT_EQ(tier.put_if_absent("key", "x"), PutOutcome::kStored);
}

TEST_F(FileTierTest, AShardThatDisappearsDuringAPutIsCreatedAgain) {
  on_link = [&](const auto& link) {
    fs::remove_all(path_ + "/objects");
    return link();
  };
  EXPECT_EQ(tier_.put_if_absent("key", "x"), PutOutcome::kStored);
  EXPECT_EQ(tier_.get("key", 1), "x");
}

// If the test runs as root, makes the user `nobody`, without capabilities, the effective user until the destructor.
class Unprivileged {
 public:
  Unprivileged() : was_root_(::geteuid() == 0) {
    if (was_root_ && ::seteuid(65534) != 0) ADD_FAILURE() << std::strerror(errno);
  }
  ~Unprivileged() {
    if (was_root_ && ::seteuid(0) != 0) ADD_FAILURE() << std::strerror(errno);
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  const bool was_root_;
};

TEST_F(FileTierTest, ADirectoryWithoutPermissionIsRefused) {
  ASSERT_EQ(::chmod(scratch_.path().c_str(), 0755), 0);
  (void)tier_.put_if_absent("key", "x");
  ASSERT_EQ(::chmod(path_.c_str(), 0555), 0);
  for (const char* const name : {"/tmp", "/objects"}) {
    ASSERT_EQ(::chmod((path_ + name).c_str(), 0555), 0);
  }
  {
    const Unprivileged user;
    EXPECT_EQ(tier_.get("key", 1), "x");
    EXPECT_EQ(tier_.keys_since("", 10).keys, std::vector<std::string>{"key"});
    const std::string error = error_of([&] { return tier_.put_if_absent("other", "x"); });
    EXPECT_TRUE(error.starts_with("refused: cannot store 'other' in ")) << error;
    EXPECT_TRUE(
        error_of([&] { return tier_.acquire("key", "me", kTtl); }).starts_with("refused: "));
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0000), 0);
  {
    const Unprivileged user;
    EXPECT_TRUE(error_of([&] { return tier_.get("key", 1); }).starts_with("refused: "));
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
}

// A tmpfs of 256 KiB that is mounted on `path`.
class Tmpfs {
 public:
  explicit Tmpfs(std::string path)
      : path_(std::move(path)),
        mounted_(::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=256k") == 0) {}
  ~Tmpfs() { unmount(); }
  Tmpfs(const Tmpfs&) = delete;
  Tmpfs& operator=(const Tmpfs&) = delete;

  bool is_mounted() const { return mounted_; }
  void unmount() {
    if (!std::exchange(mounted_, false)) return;
    EXPECT_EQ(::umount(path_.c_str()), 0) << std::strerror(errno);
  }

 private:
  const std::string path_;
  bool mounted_;
};

TEST_F(FileTierTest, AFullFileSystemIsFullAndKeepsNothingOfTheObject) {
  const Tmpfs small(path_);
  if (!small.is_mounted()) GTEST_SKIP() << "mounting a tmpfs failed: " << std::strerror(errno);
  const std::string error =
      error_of([&] { return tier_.put_if_absent("key", std::string(1 << 20, 'x')); });
  EXPECT_TRUE(error.starts_with("full: cannot store 'key' in ")) << error;
  EXPECT_TRUE(files("").empty());
  EXPECT_EQ(tier_.get("key", kNoLimit), std::nullopt);
  EXPECT_EQ(tier_.put_if_absent("key", std::string(100'000, 'x')), PutOutcome::kStored);
}

TEST_F(FileTierTest, AnUnmountedFileSystemIsNotFilled) {
  Tmpfs shared(path_);
  if (!shared.is_mounted()) GTEST_SKIP() << "mounting a tmpfs failed: " << std::strerror(errno);
  (void)tier_.put_if_absent("key", "x");
  shared.unmount();
  EXPECT_TRUE(
      error_of([&] { return tier_.put_if_absent("key", "x"); }).starts_with("unavailable: "));
  EXPECT_TRUE(error_of([&] { return tier_.get("key", 1); }).starts_with("unavailable: "));
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(FileTierTest, ADirectoryThatWasEmptiedIsUsedAgain) {
  (void)tier_.put_if_absent("key", "x");
  for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry);
  EXPECT_EQ(tier_.get("key", 1), std::nullopt);
  EXPECT_EQ(tier_.put_if_absent("key", "x"), PutOutcome::kStored);
}

}  // namespace
}  // namespace cacheshim::remote
