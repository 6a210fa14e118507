// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/file_tier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/support/scratch.h"

namespace {

// Code that runs instead of the next linkat(2), or before the next statx(2) or utimensat(2), of this thread.
thread_local std::function<int(const std::function<int()>& link)> on_link;
thread_local std::function<void()> before_statx;
thread_local std::function<void()> before_touch;
thread_local int stat_calls = 0;  // of fstatat(2)

void run_once(std::function<void()>& hook) {
  if (const auto once = std::exchange(hook, nullptr)) once();
}

}  // namespace

// These functions replace libc's, so that a test can act in the middle of a call of FileTier.
extern "C" int linkat(int dir, const char* name, int new_dir, const char* new_name,
                      int flags) noexcept {
  const auto link = [=] {
    return static_cast<int>(::syscall(SYS_linkat, dir, name, new_dir, new_name, flags));
  };
  const auto once = std::exchange(on_link, nullptr);
  return once ? once(link) : link();
}

extern "C" int statx(int dir, const char* name, int flags, unsigned mask,
                     struct statx* out) noexcept {
  run_once(before_statx);
  return static_cast<int>(::syscall(SYS_statx, dir, name, flags, mask, out));
}

extern "C" int fstatat(int dir, const char* name, struct stat* out, int flags) noexcept {
  ++stat_calls;
  return static_cast<int>(::syscall(SYS_newfstatat, dir, name, out, flags));
}

extern "C" int utimensat(int dir, const char* name, const timespec* times, int flags) noexcept {
  run_once(before_touch);
  return static_cast<int>(::syscall(SYS_utimensat, dir, name, times, flags));
}

namespace cacheshim::remote {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Kind = TierError::Kind;

constexpr std::size_t kNoLimit = std::size_t{1} << 30;
constexpr auto kTtl = 60s;

int fail_with(int code) {
  errno = code;
  return -1;
}

// Returns the error that `action` throws, or "none".
template <class Action>
std::string error_of(Action action) {
  try {
    (void)action();
    return "none";
  } catch (const TierError& error) {
    constexpr const char* kNames[] = {"unavailable: ", "full: ", "refused: "};
    return kNames[static_cast<int>(error.kind())] + std::string(error.what());
  }
}

class FileTierTest : public ::testing::Test {
 protected:
  FileTierTest() { fs::create_directory(path_); }
  ~FileTierTest() override {
    on_link = nullptr;
    before_statx = nullptr;
    before_touch = nullptr;
  }

  FileTier make(std::chrono::milliseconds slack = FileTier::kSlack) const {
    return FileTier(path_, 2000ms, slack);
  }
  // Returns the files below a subdirectory, sorted.
  std::vector<std::string> files(const std::string& below) const {
    std::vector<std::string> found;
    if (!fs::exists(path_ + "/" + below)) return found;
    for (const auto& entry : fs::recursive_directory_iterator(path_ + "/" + below)) {
      if (!entry.is_directory()) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  static void set_age(const std::string& file, std::chrono::seconds age) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - age);
  }
  // Returns the names of the lease files of the only key that has leases.
  std::vector<std::string> lease_numbers() const {
    std::vector<std::string> numbers;
    for (const std::string& file : files("leases")) numbers.push_back(fs::path(file).filename());
    return numbers;
  }

  Scratch scratch_;
  const std::string path_ = scratch_ / "shared";
  FileTier tier_ = make();
  FileTier other_ = make();
};

// ---- objects

std::vector<std::string> unusual_keys() {
  return {"a",
          ".",
          "..",
          ".hidden",
          "a/b/c",
          "%2F",
          "a~b",
          "Case",
          "case",
          "key with spaces",
          "\xC3\xA9\xE2\x82\xAC",
          std::string(200, 'x'),
          std::string(201, 'x'),
          std::string(1024, '/'),
          std::string(1024, 'x')};
}

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

// ---- temporary files

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

// ---- errors

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

// The effective user `nobody`, without capabilities, if the test runs as root.
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

// A tmpfs on the shared directory.
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

// ---- leases

TEST_F(FileTierTest, OneOfEightOwnersGetsTheLease) {
  for (int round = 0; round < 20; ++round) {
    const std::string key = "key" + std::to_string(round);
    // In every second round, an earlier lease was released.
    if (round % 2 == 1) {
      EXPECT_EQ(tier_.acquire(key, "earlier", kTtl), 1U);
      tier_.release(key, "earlier");
    }
    std::atomic<int> winners{0};
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
          FileTier own = make();
          if (own.acquire(key, "owner" + std::to_string(i), kTtl)) ++winners;
        });
      }
    }
    EXPECT_EQ(winners, 1);
  }
  EXPECT_TRUE(files("tmp").empty());
}

TEST_F(FileTierTest, FencingNumbersRiseAndTheHighestStays) {
  for (std::uint64_t number = 1; number <= 12; ++number) {
    EXPECT_EQ(tier_.acquire("a/key", "me", kTtl), number);
    EXPECT_EQ(other_.acquire("a/key", "you", kTtl), std::nullopt);
    tier_.release("a/key", "me");
    EXPECT_EQ(lease_numbers(), std::vector{std::to_string(number)});
  }
}

TEST_F(FileTierTest, TheOwnerOfALeaseGetsItAgain) {
  EXPECT_EQ(tier_.acquire("key", "me", kTtl), 1U);
  EXPECT_EQ(tier_.acquire("key", "me", kTtl), 2U);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), std::nullopt);
  EXPECT_TRUE(tier_.renew("key", "me", kTtl));
}

TEST_F(FileTierTest, LeasesOfDifferentKeysAreIndependent) {
  EXPECT_TRUE(tier_.acquire("key", "me", kTtl));
  EXPECT_TRUE(other_.acquire("other", "you", kTtl));
}

TEST_F(FileTierTest, ANonOwnerChangesNothing) {
  EXPECT_FALSE(other_.renew("key", "you", kTtl));
  other_.release("key", "you");
  EXPECT_TRUE(tier_.acquire("key", "me", kTtl));
  const std::string file = files("leases").front();
  set_age(file, 30s);
  const auto before = fs::last_write_time(file);
  EXPECT_FALSE(other_.renew("key", "you", kTtl));
  other_.release("key", "you");
  EXPECT_EQ(fs::last_write_time(file), before);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), std::nullopt);
  EXPECT_TRUE(tier_.renew("key", "me", kTtl));
}

TEST_F(FileTierTest, AnExpiredLeaseIsFree) {
  EXPECT_EQ(tier_.acquire("key", "me", 60s), 1U);
  set_age(files("leases").front(), 55s);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), std::nullopt);
  set_age(files("leases").front(), 61s);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), 2U);
  EXPECT_FALSE(tier_.renew("key", "me", kTtl));
  tier_.release("key", "me");
  EXPECT_TRUE(other_.renew("key", "you", kTtl));
}

TEST_F(FileTierTest, ALeaseExpiresWithoutHelp) {
  EXPECT_EQ(tier_.acquire("key", "me", 200ms), 1U);
  const auto begin = Clock::now();
  std::optional<std::uint64_t> number;
  while (!number && Clock::now() - begin < 10s) number = other_.acquire("key", "you", kTtl);
  EXPECT_EQ(number, 2U);
  EXPECT_GT(Clock::now() - begin, 100ms);
}

TEST_F(FileTierTest, ALeaseThatExpiredCannotBeRenewedAndIsFree) {
  EXPECT_EQ(tier_.acquire("key", "me", 60s), 1U);
  set_age(files("leases").front(), 61s);
  EXPECT_FALSE(tier_.renew("key", "me", kTtl));
  EXPECT_EQ(other_.acquire("key", "you", kTtl), 2U);
}

TEST_F(FileTierTest, RenewExtendsTheLeaseToTheNewTtl) {
  EXPECT_TRUE(tier_.acquire("key", "me", 60s));
  set_age(files("leases").front(), 50s);
  EXPECT_TRUE(tier_.renew("key", "me", 60s));
  EXPECT_LT(fs::file_time_type::clock::now() - fs::last_write_time(files("leases").front()), 40s);
  EXPECT_TRUE(tier_.renew("key", "me", 3600s));
  set_age(files("leases").front(), 3590s);
  EXPECT_EQ(other_.acquire("key", "you", kTtl), std::nullopt);
  EXPECT_TRUE(tier_.renew("key", "me", 10s));
  set_age(files("leases").front(), 11s);
  EXPECT_TRUE(other_.acquire("key", "you", kTtl));
}

TEST_F(FileTierTest, ANumberThatWasRemovedIsNotGrantedAgain) {
  EXPECT_EQ(tier_.acquire("key", "first", kTtl), 1U);
  tier_.release("key", "first");
  FileTier stopped = make();
  on_link = [&](const auto& link) {
    EXPECT_EQ(other_.acquire("key", "second", kTtl), 2U);
    other_.release("key", "second");
    EXPECT_EQ(tier_.acquire("key", "third", kTtl), 3U);
    return link();  // creates 2 again
  };
  EXPECT_EQ(stopped.acquire("key", "late", kTtl), std::nullopt);
  EXPECT_FALSE(stopped.renew("key", "late", kTtl));
  EXPECT_TRUE(tier_.renew("key", "third", kTtl));
  tier_.release("key", "third");
  EXPECT_EQ(other_.acquire("key", "fourth", kTtl), 4U);
}

TEST_F(FileTierTest, ANumberBelowAReleasedLeaseIsNotGranted) {
  EXPECT_EQ(tier_.acquire("key", "first", kTtl), 1U);
  tier_.release("key", "first");
  FileTier stopped = make();
  on_link = [&](const auto& link) {
    for (const char* const owner : {"second", "third"}) {
      EXPECT_TRUE(other_.acquire("key", owner, kTtl));
      other_.release("key", owner);
    }
    return link();  // creates 2 again
  };
  EXPECT_EQ(stopped.acquire("key", "late", kTtl), std::nullopt);
  EXPECT_EQ(other_.acquire("key", "fourth", kTtl), 4U);
}

TEST_F(FileTierTest, ASuccessorWithdrawsIfTheHolderRenewsAtTheSameTime) {
  EXPECT_EQ(tier_.acquire("key", "holder", kTtl), 1U);
  const std::string file = files("leases").front();
  set_age(file, 61s);
  on_link = [&](const auto& link) {
    set_age(file, 0s);  // step (b) of the holder's renew
    return link();
  };
  EXPECT_EQ(other_.acquire("key", "successor", kTtl), std::nullopt);
  EXPECT_FALSE(tier_.renew("key", "holder", kTtl));
  EXPECT_EQ(make().acquire("key", "third", kTtl), 3U);
}

TEST_F(FileTierTest, AHolderGivesUpIfASuccessorCameBeforeItsTouch) {
  EXPECT_EQ(tier_.acquire("key", "holder", kTtl), 1U);
  before_touch = [&] {
    set_age(files("leases").front(), 61s);
    EXPECT_EQ(other_.acquire("key", "successor", kTtl), 2U);
  };
  EXPECT_FALSE(tier_.renew("key", "holder", kTtl));
  EXPECT_TRUE(other_.renew("key", "successor", kTtl));
}

TEST_F(FileTierTest, TwoOwnersNeverHoldALeaseAtOnce) {
  std::atomic<int> holders{0};
  std::atomic<int> broken{0};
  std::atomic<std::uint64_t> last{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, owner = "owner" + std::to_string(i)] {
        FileTier own = make();
        for (int round = 0; round < 150; ++round) {
          const auto number = own.acquire("key", owner, kTtl);
          if (!number) continue;
          if (holders.fetch_add(1) != 0 || last.exchange(*number) >= *number) ++broken;
          if (!own.renew("key", owner, kTtl)) ++broken;
          holders.fetch_sub(1);
          own.release("key", owner);
        }
      });
    }
  }
  EXPECT_EQ(broken, 0);
  EXPECT_GT(last, 4U);
}

TEST_F(FileTierTest, ADamagedLeaseFileCountsAsReleased) {
  EXPECT_EQ(tier_.acquire("key", "me", kTtl), 1U);
  for (const unsigned left : {30U, 20U, 0U}) {
    fs::resize_file(files("leases").front(), left);
    EXPECT_FALSE(tier_.renew("key", "me", kTtl));
  }
  EXPECT_EQ(other_.acquire("key", "you", kTtl), 2U);
}

// ---- wait

// Returns how long `action` takes.
template <class Action>
Clock::duration time_of(Action action) {
  const auto begin = Clock::now();
  action();
  return Clock::now() - begin;
}

class FileTierWaitTest : public FileTierTest {
 protected:
  FileTierWaitTest() { EXPECT_TRUE(other_.acquire("key", "builder", kTtl)); }
  // Calls `action` on another thread while this one waits. Returns how long it waits after that.
  Clock::duration wait_for(const std::function<void()>& action) {
    Clock::time_point acted;
    std::jthread actor([&] {
      std::this_thread::sleep_for(100ms);
      acted = Clock::now();
      action();
    });
    tier_.wait("key", 20s);
    const auto end = Clock::now();
    actor.join();
    return end - acted;
  }
};

TEST_F(FileTierWaitTest, EndsByItsTimeout) {
  const auto waited = time_of([&] { tier_.wait("key", 1000ms); });
  EXPECT_GE(waited, 1000ms);
  EXPECT_LT(waited, 9s);
}

TEST_F(FileTierWaitTest, WakesOnAPut) {
  const auto waited = wait_for([&] { (void)other_.put_if_absent("key", "x"); });
  EXPECT_GE(waited, 0ms);
  EXPECT_LT(waited, 9s);
}

TEST_F(FileTierWaitTest, WakesOnARelease) {
  const auto waited = wait_for([&] { other_.release("key", "builder"); });
  EXPECT_GE(waited, 0ms);
  EXPECT_LT(waited, 9s);
}

TEST_F(FileTierWaitTest, WakesIfThereIsANewLease) {
  // A new lease replaces the old one, and no poll can find the key without a lease.
  const auto waited = wait_for([&] { EXPECT_TRUE(other_.acquire("key", "builder", kTtl)); });
  EXPECT_GE(waited, 0ms);
  EXPECT_LT(waited, 9s);
}

TEST_F(FileTierWaitTest, DoesNotWakeOnARenewal) {
  std::atomic<bool> done{false};
  std::jthread builder([&] {
    while (!done) EXPECT_TRUE(other_.renew("key", "builder", kTtl));
  });
  EXPECT_GE(time_of([&] { tier_.wait("key", 400ms); }), 400ms);
  done = true;
}

TEST_F(FileTierWaitTest, WakesWhenTheLeaseIsNotRenewed) {
  EXPECT_TRUE(other_.renew("key", "builder", 200ms));
  EXPECT_LT(time_of([&] { tier_.wait("key", 20s); }), 9s);
}

TEST_F(FileTierWaitTest, ReturnsAtOnceIfThereIsNothingToWaitFor) {
  EXPECT_LT(time_of([&] { tier_.wait("free", 20s); }), 9s);
  other_.release("key", "builder");
  EXPECT_LT(time_of([&] { tier_.wait("key", 20s); }), 9s);
  EXPECT_TRUE(other_.acquire("key", "builder", kTtl));
  (void)other_.put_if_absent("key", "x");
  EXPECT_LT(time_of([&] { tier_.wait("key", 20s); }), 9s);
}

// ---- the catalogue

// Adds the keys of all pages from `position` on, and returns the last position.
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
