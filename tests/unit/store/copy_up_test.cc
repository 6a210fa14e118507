// SPDX-License-Identifier: Apache-2.0
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <future>
#include <thread>

#include "store/overlay/changes.h"
#include "store/overlay/copy_bound.h"
#include "store/overlay/copy_up.h"
#include "store/overlay/staged_copies.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

class CopyUp : public OverlayTest {
 protected:
  Result<UniqueFd> open_writable(const std::string& path) {
    const std::unique_lock lock(overlay_.mutex());
    return cacheshim::open_writable(overlay_, path, O_RDWR);
  }
  // Returns the names in the work directory, except the records of hard links and origins.
  Names left_in_work() const {
    Names names;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_ / "work")) {
      const auto name = entry.path().filename();
      if (name != LinkIndex::kDirectory && name != OriginLog::kFile) names.push_back(name);
    }
    return names;
  }
};

TEST_F(CopyUp, PreparedCopyIsTakenAndNotMadeAgain) {
  scratch_.write("base/a/x", "text");
  const auto prepared = prepare_copy_up(overlay_, "a/x");
  ASSERT_TRUE(prepared);
  ASSERT_TRUE(open_writable("a/x"));
  EXPECT_EQ(get("a/x"), "text");
  EXPECT_EQ(steps_.begun, 1);
  EXPECT_EQ(counters_.copy_ups, 1U);
}

TEST_F(CopyUp, ABoundCountsWhatIsCopied) {
  for (const char* name : {"a/x", "a/b/y", "a/b/z"}) scratch_.write(std::string("base/") + name, "text");
  const auto exceeds_at = [this](CopyBound bound, const char* path) {
    return exceeds(bound, overlay_, path);
  };
  const std::uint64_t block = size_of_copy(*overlay_.find_in_base("a/x"));
  EXPECT_FALSE(exceeds_at({.objects = 5, .bytes = 3 * block}, "a"));  // two directories, three files
  EXPECT_TRUE(exceeds_at({.objects = 4, .bytes = 3 * block}, "a"));
  EXPECT_TRUE(exceeds_at({.objects = 5, .bytes = 3 * block - 1}, "a"));
  EXPECT_TRUE(exceeds_at({.objects = 1, .bytes = block - 1}, "a/x"));
  EXPECT_FALSE(exceeds_at({.objects = 1, .bytes = block}, "a/x"));
  const CopyBound nothing{.objects = 0, .bytes = 0};
  EXPECT_TRUE(exceeds_at(nothing, "a/x"));
  ASSERT_TRUE(open_writable("a/x"));
  EXPECT_FALSE(exceeds_at(nothing, "a/x"));
  EXPECT_FALSE(exceeds_at(nothing, "none"));
}

TEST_F(CopyUp, OtherRequestsContinueWhileAFileIsCopied) {
  scratch_.write("base/a/x", "text");
  std::promise<void> begun;
  std::promise<void> go_on;
  steps_.then = [&](CopyUpStep step) -> Status {
    if (step != CopyUpStep::kBegun) return {};
    begun.set_value();
    go_on.get_future().wait();
    return {};
  };
  auto copying = std::async(std::launch::async, [&] { return prepare_copy_up(overlay_, "a/x"); });
  begun.get_future().wait();
  EXPECT_TRUE(overlay_.find("a/x"));
  {
    const std::unique_lock lock(overlay_.mutex(), std::try_to_lock);
    EXPECT_TRUE(lock.owns_lock());
    put("a/y", "other");
  }
  go_on.set_value();
  ASSERT_TRUE(copying.get());
  EXPECT_EQ(get("a/y"), "other");
}

TEST_F(CopyUp, ConcurrentCopyUpsShareOneCopy) {
  scratch_.write("base/a/x", "text");
  std::promise<void> begun;
  std::promise<void> go_on;
  steps_.then = [&](CopyUpStep step) -> Status {
    if (step != CopyUpStep::kBegun) return {};
    begun.set_value();  // throws if a second copy begins
    go_on.get_future().wait();
    return {};
  };
  const auto write = [&] {
    const auto prepared = prepare_copy_up(overlay_, "a/x");
    return prepared && open_writable("a/x");
  };
  auto one = std::async(std::launch::async, write);
  begun.get_future().wait();
  auto other = std::async(std::launch::async, write);
  go_on.set_value();
  EXPECT_TRUE(one.get());
  EXPECT_TRUE(other.get());
  EXPECT_EQ(steps_.begun, 1);
  EXPECT_EQ(counters_.copy_ups, 1U);
}

TEST_F(CopyUp, AnOutdatedCopyIsMadeAgain) {
  scratch_.write("base/a/x", "old");
  auto prepared = prepare_copy_up(overlay_, "a/x");
  ASSERT_TRUE(prepared);
  scratch_.write("base/a/x", "newer");
  ASSERT_TRUE(open_writable("a/x"));
  EXPECT_EQ(get("a/x"), "newer");
  prepared->clear();
  EXPECT_EQ(left_in_work(), Names{});
}

TEST_F(CopyUp, TheFileOfAPreparedCopyIsTheOneInTheLayer) {
  scratch_.write("base/a/x", "text");
  const auto prepared = prepare_copy_up(overlay_, "a/x");
  ASSERT_TRUE(prepared);
  const auto fd = open_writable("a/x");
  ASSERT_TRUE(fd);
  const auto named = sys::open_path(scratch_ / "upper/a/x", O_PATH);
  ASSERT_TRUE(named);
  EXPECT_EQ(sys::stat_fd(fd->get())->st_ino, sys::stat_fd(named->get())->st_ino);
  EXPECT_TRUE(sys::write_all(fd->get(), "TE"));
  EXPECT_EQ(get("a/x"), "TExt");
}

TEST_F(CopyUp, CopiesOfADirectorysFilesDoNotStayOpen) {
  for (int i = 0; i < 20; ++i) scratch_.write("base/a/" + std::to_string(i), "text");
  const auto open_files = [] {
    return sys::read_dir(sys::open_path("/proc/self/fd", O_RDONLY)->get())->size();
  };
  const auto before = open_files();
  const auto prepared = prepare_copy_up(overlay_, "a");
  ASSERT_TRUE(prepared);
  EXPECT_EQ(prepared->size(), 20U);
  EXPECT_EQ(open_files(), before);
}

TEST_F(CopyUp, AnUnusedCopyLeavesNothing) {
  scratch_.write("base/a/x", "text");
  auto prepared = prepare_copy_up(overlay_, "a/x");
  ASSERT_TRUE(prepared);
  EXPECT_EQ(left_in_work().size(), 1U);
  prepared->clear();
  EXPECT_EQ(left_in_work(), Names{});
  EXPECT_FALSE(scratch_.exists("upper/a"));
}

TEST_F(CopyUp, DirectoryIsPreparedWithAllThatIsBelow) {
  scratch_.write("base/a/d/x", "x");
  scratch_.write("base/a/d/deep/y", "y");
  const auto prepared = prepare_copy_up(overlay_, "a/d");
  ASSERT_TRUE(prepared);
  EXPECT_EQ(prepared->size(), 2U);
  ASSERT_TRUE(changes::rename(overlay_, "a/d", "a/e", 0));
  EXPECT_EQ(get("a/e/deep/y"), "y");
  EXPECT_EQ(steps_.begun, 2);
}

TEST_F(CopyUp, FailureKeepsNothingAndTheNextTriesAgain) {
  scratch_.write("base/a/x", "text");
  steps_.then = [](CopyUpStep) -> Status { return Errno(ENOSPC); };
  EXPECT_TRUE(prepare_copy_up(overlay_, "a/x").failed_with(ENOSPC));
  EXPECT_TRUE(open_writable("a/x").failed_with(ENOSPC));
  EXPECT_EQ(left_in_work(), Names{});
  EXPECT_EQ(get("a/x"), "text");
  steps_.then = nullptr;
  EXPECT_TRUE(open_writable("a/x"));
}

// A file of ten bytes that is copied into a work directory.
class StagedCopiesTest : public ::testing::Test {
 protected:
  StagedCopiesTest() {
    scratch_.write("source", "0123456789");
    copies_.set_work(std::make_shared<const UniqueFd>(scratch_.open_dir("work")));
  }
  Result<StagedCopies::Claim> begin(off_t keep_bytes,
                                    StagedCopies::Keep keep = StagedCopies::Keep::kClosed) {
    return copies_.begin(*sys::open_path(scratch_ / "source", O_RDONLY), keep_bytes, keep);
  }

  Scratch scratch_;
  CopyUpSteps steps_;
  StagedCopies copies_{&steps_, false};
};

TEST_F(StagedCopiesTest, FailureIsReportedToWaiters) {
  steps_.then = [](CopyUpStep) -> Status { return Errno(EDQUOT); };
  const auto maker = begin(10);
  const auto waiter = begin(5);
  ASSERT_TRUE(maker->is_maker);
  ASSERT_FALSE(waiter->is_maker);
  auto waiting = std::async(std::launch::async, [&] { return copies_.complete(*waiter); });
  EXPECT_TRUE(copies_.complete(*maker).failed_with(EDQUOT));
  EXPECT_TRUE(waiting.get().failed_with(EDQUOT));
  EXPECT_TRUE(begin(10)->is_maker);
}

TEST_F(StagedCopiesTest, AnExceptionIsAFailureForWaiters) {
  steps_.then = [](CopyUpStep) -> Status { throw std::bad_alloc(); };
  const auto maker = begin(10);
  const auto waiter = begin(10);
  EXPECT_THROW((void)copies_.complete(*maker), std::bad_alloc);
  EXPECT_TRUE(copies_.complete(*waiter).failed_with(ENOMEM));
}

TEST_F(StagedCopiesTest, ShorterCopyIsNotUsedForALongerRequest) {
  const auto shorter = begin(5);
  ASSERT_TRUE(shorter->is_maker);
  EXPECT_FALSE(begin(4)->is_maker);
  EXPECT_TRUE(begin(10)->is_maker);
}

TEST_F(StagedCopiesTest, CopyThatIsTakenIsNotUsedAgain) {
  const auto first = begin(10);
  ASSERT_TRUE(copies_.complete(*first));
  EXPECT_FALSE(copies_.set_taken(first->copy)) << "the copy was not to stay open";
  EXPECT_TRUE(begin(10)->is_maker);
}

TEST_F(StagedCopiesTest, CopyStaysOpenIfItsMakerWantsThat) {
  const auto claim = begin(10, StagedCopies::Keep::kOpen);
  ASSERT_TRUE(copies_.complete(*claim));
  const UniqueFd copy = copies_.set_taken(claim->copy);
  ASSERT_TRUE(copy);
  EXPECT_TRUE(sys::write_all(copy.get(), "x"));
  EXPECT_EQ(scratch_.read("work/" + claim->copy->name()), "x123456789");
}

// Kills a daemon at each step of a copy-up. The next daemon then takes over the layer.
class CopyUpCrash : public CopyUp, public ::testing::WithParamInterface<CopyUpStep> {
 protected:
  void crash_while_copying(const std::string& path) {
    const pid_t child = ::fork();
    if (child == 0) {
      steps_.then = [](CopyUpStep step) -> Status {
        if (step == GetParam()) ::_exit(7);
        return {};
      };
      (void)cacheshim::open_writable(overlay_, path, O_RDWR);  // does not return
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 7);
    take_up_layer(overlay_);
  }
};

TEST_P(CopyUpCrash, LeavesTheBaseFileAndNoTrace) {
  scratch_.write("base/a/x", "text");
  crash_while_copying("a/x");
  EXPECT_EQ(get("a/x"), "text");
  EXPECT_EQ(names("a"), Names{"x"});
  EXPECT_EQ(left_in_work(), Names{});
  EXPECT_EQ(scratch_.exists("upper/a/x"), GetParam() == CopyUpStep::kNamed);
  ASSERT_TRUE(open_writable("a/x"));
}

TEST_P(CopyUpCrash, KeepsHardLinksOneFile) {
  scratch_.write("base/a/x", "text");
  std::filesystem::create_hard_link(scratch_ / "base/a/x", scratch_ / "base/a/y");
  crash_while_copying("a/x");
  EXPECT_EQ(get("a/y"), "text");
  EXPECT_EQ(left_in_work(), Names{});
  const auto fd = open_writable("a/x");
  ASSERT_TRUE(fd);
  ASSERT_TRUE(sys::write_all(fd->get(), "TEXT"));
  EXPECT_EQ(get("a/y"), "TEXT");
}

INSTANTIATE_TEST_SUITE_P(AtEachStep, CopyUpCrash,
                         ::testing::Values(CopyUpStep::kBegun, CopyUpStep::kFilled,
                                           CopyUpStep::kIndexed, CopyUpStep::kNamed));

TEST_F(CopyUp, KeepsModeTimesAttributesAndHoles) {
  scratch_.write("base/a/x", "");
  const std::string path = scratch_ / "base/a/x";
  ASSERT_EQ(::truncate(path.c_str(), 8 << 20), 0);
  ASSERT_EQ(::chmod(path.c_str(), 01666), 0);
  ASSERT_EQ(::chmod((scratch_ / "base/a").c_str(), 0751), 0);
  ASSERT_EQ(::setxattr(path.c_str(), "user.note", "kept", 4, 0), 0);
  const timespec times[2] = {{1'000'000'000, 123'456'789}, {1'100'000'000, 987'654'321}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  ASSERT_TRUE(open_writable("a/x"));
  const auto found = overlay_.find("a/x");
  ASSERT_TRUE(found && found->in_upper);
  EXPECT_EQ(found->st.st_mode & 07777, 01666U);
  EXPECT_EQ(overlay_.find("a")->st.st_mode & 07777, 0751U);
  EXPECT_EQ(found->st.st_size, 8 << 20);
  EXPECT_LT(found->st.st_blocks, 64);
  EXPECT_EQ(found->st.st_atim.tv_nsec, 123'456'789);
  EXPECT_EQ(found->st.st_mtim.tv_sec, 1'100'000'000);
  EXPECT_EQ(found->st.st_mtim.tv_nsec, 987'654'321);
  char value[8] = {};
  EXPECT_EQ(::getxattr((scratch_ / "upper/a/x").c_str(), "user.note", value, sizeof value), 4);
}

// Returns an access ACL that gives read permission to one more user, 20002. Format:
// linux/posix_acl_xattr.h.
std::string acl_of_one_more_user() {
  struct Entry {
    std::uint16_t tag;
    std::uint16_t rights;
    std::uint32_t id;
  };
  const Entry entries[] = {
      {0x01, 6, ~0U}, {0x02, 4, 20002}, {0x04, 0, ~0U}, {0x10, 4, ~0U}, {0x20, 0, ~0U}};
  const std::uint32_t version = 2;
  std::string acl(reinterpret_cast<const char*>(&version), sizeof version);
  return acl.append(reinterpret_cast<const char*>(entries), sizeof entries);
}

TEST_F(CopyUp, KeepsOwnersAndAclsWhereAsked) {
  Overlay overlay({base_.get()}, entries_, counters_, nullptr, {.keep_owner = true});
  take_up_layer(overlay);
  scratch_.write("base/a/x", "text");
  const std::string acl = acl_of_one_more_user();
  for (const char* name : {"base/a/x", "base/a"}) {
    ASSERT_EQ(::chown((scratch_ / name).c_str(), 20001, 20003), 0);
  }
  ASSERT_EQ(::setxattr((scratch_ / "base/a/x").c_str(), "system.posix_acl_access", acl.data(),
                       acl.size(), 0),
            0);
  ASSERT_EQ(::symlink("x", (scratch_ / "base/a/link").c_str()), 0);
  ASSERT_EQ(::lchown((scratch_ / "base/a/link").c_str(), 20001, 20003), 0);
  ASSERT_TRUE(copy_up(overlay, "a/x"));
  ASSERT_TRUE(copy_up(overlay, "a/link"));
  for (const char* name : {"a", "a/x", "a/link"}) {
    struct stat st {};
    ASSERT_EQ(::lstat((scratch_ / ("upper/" + std::string(name))).c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, 20001U) << name;
    EXPECT_EQ(st.st_gid, 20003U) << name;
  }
  std::string kept(256, '\0');
  const ssize_t length = ::getxattr((scratch_ / "upper/a/x").c_str(), "system.posix_acl_access",
                                    kept.data(), kept.size());
  ASSERT_GT(length, 0);
  EXPECT_EQ(kept.substr(0, static_cast<std::size_t>(length)), acl);
}

TEST_F(CopyUp, FileWithoutANameGetsOne) {
  scratch_.write("base/a/x", "x");
  EXPECT_TRUE(changes::make_tmpfile(overlay_, "none", O_RDWR, 0644).failed_with(ENOENT));
  const auto fd = changes::make_tmpfile(overlay_, "a", O_RDWR, 0644);
  ASSERT_TRUE(fd);
  ASSERT_TRUE(sys::write_all(fd->get(), "text"));
  EXPECT_EQ(names("a"), Names{"x"});
  EXPECT_TRUE(changes::link_object(overlay_, fd->get(), "a/x").failed_with(EEXIST));
  ASSERT_TRUE(changes::link_object(overlay_, fd->get(), "a/y"));
  EXPECT_EQ(get("a/y"), "text");
  EXPECT_EQ(left_in_work(), Names{});
}

}  // namespace
}  // namespace cacheshim
