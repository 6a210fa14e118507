// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <vector>

#include "store/layer/baton_record.h"
#include "store/layer/closing_record.h"
#include "store/locks/shared_file.h"
#include "store/overlay/changes.h"
#include "store/overlay/common_names.h"
#include "store/overlay/copy_up.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

// In this family, "*.lock" are locks, "*.all" are shared files, and "baton" is a baton.
class LockFilesTest : public OverlayTest {
 protected:
  LockFilesTest() {
    profiles_.front().classes.emplace_back(NameClass::kLock, PathPattern("*.lock"));
    profiles_.front().classes.emplace_back(NameClass::kShared, PathPattern("*.all"));
    profiles_.front().classes.emplace_back(NameClass::kBaton, PathPattern("baton"));
    overlay_.locks().directory.share(base_.get());
    EXPECT_TRUE(changes::make_dir(overlay_, "fam", 0755));
    EXPECT_TRUE(changes::make_dir(overlay_, "fam/entry", 0755));
  }
};

TEST_F(LockFilesTest, AreMadeInTheBaseOpenToAllAndAreFoundThere) {
  put("fam/entry/x.lock", "");
  struct stat st {};
  ASSERT_EQ(::stat((scratch_ / "base/fam/entry/x.lock").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0666U);
  EXPECT_FALSE(scratch_.exists("upper/fam/entry/x.lock"));
  EXPECT_TRUE(is_shared_lock(overlay_, "fam/entry/x.lock"));
  const auto found = overlay_.find("fam/entry/x.lock");
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->in_upper);
  EXPECT_EQ(found->st.st_ino, st.st_ino);
  EXPECT_TRUE(
      changes::create_file(overlay_, "fam/entry/x.lock", O_WRONLY, 0644).failed_with(EEXIST));
}

TEST_F(LockFilesTest, AnExistingFileIsOpenedWithoutOExcl) {
  const auto made = create_lock(overlay_, "fam/entry/x.lock", O_RDWR);
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->is_new);
  const auto again = create_lock(overlay_, "fam/entry/x.lock", O_RDWR);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(sys::stat_fd(again->fd.get())->st_ino, sys::stat_fd(made->fd.get())->st_ino);
  EXPECT_TRUE(create_lock(overlay_, "fam/entry/x.lock", O_RDWR | O_EXCL).failed_with(EEXIST));
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/entry/y.lock", 0755));
  EXPECT_TRUE(create_lock(overlay_, "fam/entry/y.lock", O_RDWR).failed_with(EEXIST));
}

TEST_F(LockFilesTest, AreNotCopiedUpButListedAlthoughTheEntryIsOpaque) {
  put("fam/entry/x.lock", "");
  put("fam/entry/file", "of the layer");  // makes the layer's directory opaque
  EXPECT_EQ(names("fam/entry"), (Names{"file", "x.lock"}));
  ASSERT_TRUE(copy_up(overlay_, "fam/entry/x.lock"));
  EXPECT_FALSE(scratch_.exists("upper/fam/entry/x.lock"));
  EXPECT_TRUE(scratch_.exists("upper/fam/entry/.wh..wh..opq"));
}

TEST_F(LockFilesTest, RemovedLockFilesAreHiddenOnlyInOneView) {
  put("fam/entry/x.lock", "");
  hide_lock(overlay_, "fam/entry/x.lock");
  EXPECT_TRUE(overlay_.find("fam/entry/x.lock").failed_with(ENOENT));
  EXPECT_EQ(names("fam/entry"), Names{});
  EXPECT_TRUE(scratch_.exists("base/fam/entry/x.lock"));
  const auto before = sys::stat_at(base_.get(), "fam/entry/x.lock");
  put("fam/entry/x.lock", "again");
  EXPECT_EQ(sys::stat_at(base_.get(), "fam/entry/x.lock")->st_ino, before->st_ino);
}

TEST_F(LockFilesTest, TheLocksOfABatonAreTakenOnAFileThatNoViewShows) {
  put("fam/entry/baton", "");
  EXPECT_TRUE(overlay_.locks().named.may_become_lock("fam/entry/baton"));
  EXPECT_TRUE(open_named_lock(overlay_, "fam/entry/baton", /*makes=*/false).failed_with(ENOENT));
  const auto made = open_named_lock(overlay_, "fam/entry/baton", /*makes=*/true);
  ASSERT_TRUE(made);
  EXPECT_FALSE(scratch_.exists("base/fam/entry/baton"));
  BaseLocks others(entries_);
  others.directory.share(base_.get());
  const auto found = others.named.find("fam/entry/baton");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->st.st_ino, sys::stat_fd(made->get())->st_ino);
  EXPECT_FALSE(others.named.find("fam/other/baton"));
}

TEST_F(LockFilesTest, DirectoriesMayHaveNamesOfLockFiles) {
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/entry/d.lock", 0755));
  EXPECT_FALSE(is_shared_lock(overlay_, "fam/entry/d.lock"));
  EXPECT_TRUE(scratch_.exists("upper/fam/entry/d.lock"));
  put("fam/entry/d.lock/file", "x");
  EXPECT_EQ(get("fam/entry/d.lock/file"), "x");
}

TEST_F(LockFilesTest, SharedFilesAreRenamedOnlyToSharedNames) {
  put("fam/entry/x.lock", "");
  put("fam/entry/new.all", "new");
  put("fam/entry/it.all", "old");
  put("fam/entry/file", "private");
  EXPECT_TRUE(
      changes::rename(overlay_, "fam/entry/file", "fam/entry/it.all", 0).failed_with(EXDEV));
  EXPECT_TRUE(
      changes::rename(overlay_, "fam/entry/it.all", "fam/entry/file", 0).failed_with(EXDEV));
  EXPECT_TRUE(
      changes::rename(overlay_, "fam/entry/new.all", "fam/entry/x.lock", 0).failed_with(EXDEV));
  EXPECT_TRUE(changes::link(overlay_, "fam/entry/it.all", "fam/entry/y").failed_with(EPERM));
  EXPECT_TRUE(changes::link(overlay_, "fam/entry/file", "fam/entry/z.all").failed_with(EPERM));
  ASSERT_TRUE(changes::rename(overlay_, "fam/entry/new.all", "fam/entry/it.all", 0));
  EXPECT_EQ(scratch_.read("base/fam/entry/it.all"), "new");
  EXPECT_FALSE(scratch_.exists("base/fam/entry/new.all"));
}

TEST_F(LockFilesTest, AFileThatIsRenamedToALocksNameMovesToTheBase) {
  scratch_.write("base/fam/entry/lower", "of the base");
  put("fam/entry/file", "of the layer");
  const auto before = overlay_.find("fam/entry/file");
  ASSERT_TRUE(changes::rename(overlay_, "fam/entry/file", "fam/entry/x.lock", RENAME_NOREPLACE));
  EXPECT_EQ(overlay_.find("fam/entry/x.lock")->st.st_ino, before->st.st_ino);
  EXPECT_EQ(scratch_.read("base/fam/entry/x.lock"), "of the layer");
  EXPECT_EQ(sys::stat_at(base_.get(), "fam/entry/x.lock")->st_mode & 07777, 0666U);
  EXPECT_EQ(names("fam/entry"), (Names{"lower", "x.lock"}));
  EXPECT_TRUE(changes::rename(overlay_, "fam/entry/lower", "fam/entry/x.lock", RENAME_NOREPLACE)
                  .failed_with(EEXIST));
  ASSERT_TRUE(changes::rename(overlay_, "fam/entry/lower", "fam/entry/x.lock", 0));
  EXPECT_EQ(scratch_.read("base/fam/entry/x.lock"), "of the base");
  EXPECT_EQ(scratch_.read("base/fam/entry/lower"), "of the base");  // hidden only in this layer
  EXPECT_EQ(names("fam/entry"), Names{"x.lock"});
}

TEST_F(LockFilesTest, ALockFileThatIsRenamedAwayMovesToTheLayer) {
  put("fam/entry/x.lock", "x");
  ASSERT_TRUE(changes::rename(overlay_, "fam/entry/x.lock", "fam/entry/file", 0));
  EXPECT_FALSE(scratch_.exists("base/fam/entry/x.lock"));
  EXPECT_EQ(scratch_.read("upper/fam/entry/file"), "x");
  EXPECT_EQ(names("fam/entry"), Names{"file"});
  put("fam/entry/x.lock", "again");
  ASSERT_TRUE(changes::rename(overlay_, "fam/entry/x.lock", "fam/entry/y.lock", 0));
  EXPECT_EQ(scratch_.read("base/fam/entry/y.lock"), "again");
  EXPECT_EQ(names("fam/entry"), (Names{"file", "y.lock"}));
}

TEST_F(LockFilesTest, LinksLeadToOneObjectInBothDirectories) {
  put("fam/entry/file", "claim");
  ASSERT_TRUE(changes::link(overlay_, "fam/entry/file", "fam/entry/x.lock"));
  EXPECT_EQ(overlay_.find("fam/entry/file")->st.st_nlink, 2U);
  EXPECT_TRUE(changes::link(overlay_, "fam/entry/file", "fam/entry/x.lock").failed_with(EEXIST));
  ASSERT_TRUE(changes::link(overlay_, "fam/entry/x.lock", "fam/entry/y.lock"));
  ASSERT_TRUE(changes::link(overlay_, "fam/entry/x.lock", "fam/entry/copy"));
  EXPECT_EQ(overlay_.find("fam/entry/copy")->st.st_nlink, 4U);
  EXPECT_EQ(names("fam/entry"), (Names{"copy", "file", "x.lock", "y.lock"}));
  ASSERT_TRUE(
      // Both paths are names of one file.
      changes::rename(overlay_, "fam/entry/file", "fam/entry/x.lock", 0));
  EXPECT_EQ(names("fam/entry"), (Names{"copy", "file", "x.lock", "y.lock"}));
}

TEST_F(LockFilesTest, ObjectsThatCannotBeLockFilesGiveAnError) {
  put("fam/entry/large", std::string(kMostLockBytes + 1, 'x'));
  EXPECT_TRUE(
      changes::rename(overlay_, "fam/entry/large", "fam/entry/x.lock", 0).failed_with(EFBIG));
  EXPECT_TRUE(changes::link(overlay_, "fam/entry/large", "fam/entry/x.lock").failed_with(EFBIG));
  put("fam/entry/x.lock", "");
  put("fam/entry/file", "");
  EXPECT_TRUE(changes::rename(overlay_, "fam/entry/file", "fam/entry/x.lock", RENAME_EXCHANGE)
                  .failed_with(EXDEV));
  ASSERT_TRUE(changes::make_symlink(overlay_, "fam/entry/link", "nowhere"));
  EXPECT_TRUE(
      changes::rename(overlay_, "fam/entry/link", "fam/entry/x.lock", 0).failed_with(EXDEV));
}

TEST_F(LockFilesTest, LockFilesBelongToTheLayerWithoutSharing) {
  overlay_.locks().directory.share(-1);
  put("fam/entry/x.lock", "mine");
  EXPECT_EQ(scratch_.read("upper/fam/entry/x.lock"), "mine");
  EXPECT_FALSE(scratch_.exists("base/fam/entry/x.lock"));
}

TEST(ClosingRecord, NamesItsCycleAndIsReadByOlderAndNewer) {
  const Scratch scratch;
  const std::string run_dir = scratch / "run";
  EXPECT_EQ(recorded_closing(run_dir), std::nullopt);
  ASSERT_TRUE(record_closing(run_dir, "3"));
  EXPECT_EQ(recorded_closing(run_dir), "3");
  scratch.write("run.closed", "{}");  // the record of an earlier version, without a cycle
  EXPECT_EQ(recorded_closing(run_dir), "0");
  scratch.write("run.closed", R"({"cycle": "4", "why": {"signal": 15}})");
  EXPECT_EQ(recorded_closing(run_dir), "4");
  scratch.write("run.closed", "{\"cycle");  // a truncated record
  EXPECT_EQ(recorded_closing(run_dir), std::nullopt);
  forget_closing(run_dir);
  EXPECT_FALSE(scratch.exists("run.closed"));
  EXPECT_TRUE(record_closing("", "3"));  // without a run directory, there is no record and no error
}

// ---- writes to shared files

class SharedFileTest : public LockFilesTest {
 protected:
  SharedFileTest() {
    scratch_.write("base/fam/entry/x.all", "old");
    std::filesystem::create_directories(scratch_ / "staging");
    staging_ = *sys::open_path(scratch_ / "staging", O_RDONLY | O_DIRECTORY);
    locks_.directory.share(base_.get(), nullptr, staging_.get());
  }
  static void write(int fd, const std::string& text) {
    ASSERT_EQ(::pwrite(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  std::size_t staged() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(scratch_ / "staging"), {}));
  }

  const std::string path_ = "fam/entry/x.all";
  UniqueFd staging_;
  const EntryMap shared_entries_{profiles_};
  BaseLocks locks_{shared_entries_};
};

TEST_F(SharedFileTest, KeepsItsOldContentUntilTheCommit) {
  const UniqueFd fd = *locks_.files.open(path_, O_RDWR);
  SharedFile file(staging_.get(), path_, /*is_new=*/false);
  ASSERT_TRUE(file.stage(fd.get()));
  write(fd.get(), "NEWER");
  EXPECT_EQ(scratch_.read("base/" + path_), "old");
  ASSERT_TRUE(file.commit(fd.get(), locks_.files, path_));
  EXPECT_EQ(scratch_.read("base/" + path_), "NEWER");
  ASSERT_TRUE(file.stage(fd.get(), 2));  // the next copy starts with the current content
  EXPECT_EQ(scratch_.read("base/" + path_), "NEWER");
  ASSERT_TRUE(file.commit(fd.get(), locks_.files, path_));
  EXPECT_EQ(scratch_.read("base/" + path_), "NE");
  EXPECT_EQ(staged(), 0U);
}

TEST_F(SharedFileTest, UncommittedWritesAreDiscarded) {
  const UniqueFd fd = *locks_.files.open(path_, O_RDWR);
  {
    SharedFile file(staging_.get(), path_, /*is_new=*/false);
    ASSERT_TRUE(file.stage(fd.get(), 0));
    EXPECT_EQ(staged(), 1U);
  }
  EXPECT_EQ(staged(), 0U);
  EXPECT_EQ(scratch_.read("base/" + path_), "old");
}

TEST_F(SharedFileTest, AFileThatWasRemovedDoesNotComeBack) {
  const UniqueFd fd = *locks_.files.open(path_, O_RDWR);
  SharedFile file(staging_.get(), path_, /*is_new=*/false);
  ASSERT_TRUE(file.stage(fd.get()));
  ASSERT_TRUE(locks_.files.remove(path_));
  ASSERT_TRUE(file.commit(fd.get(), locks_.files, path_));
  EXPECT_FALSE(scratch_.exists("base/" + path_));
  EXPECT_EQ(staged(), 0U);
}

// ---- the creator of a baton

TEST(BatonRecord, IsReadBackAndTheLastRecordOfAPathApplies) {
  const BatonRecord first{"fam/op/lock", 7, 100, 4000, {10, 1}, "boot", "pid:[1]"};
  BatonRecord second = first;
  second.process = 200;
  const auto read = parse_baton_records(to_line(first) + "junk\n{\"path\": 3}\n" + to_line(second));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].process, 200);
  EXPECT_EQ(read[0].path, "fam/op/lock");
  EXPECT_EQ(read[0].inode, 7U);
  EXPECT_EQ(read[0].start_time, 4000U);
  EXPECT_EQ(read[0].ancestors, (std::vector<pid_t>{10, 1}));
  EXPECT_EQ(read[0].boot, "boot");
  EXPECT_EQ(read[0].pid_namespace, "pid:[1]");
}

TEST(BatonRecord, TakesMissingAndUnknownFields) {
  const auto read =
      parse_baton_records(R"({"path": "a", "inode": 1, "pid": 2, "start_time": 3, "more": [{}]})");
  ASSERT_EQ(read.size(), 1U);
  EXPECT_TRUE(read[0].ancestors.empty());
}

TEST(BatonRecord, KeepsNamesThatAreNotUtf8) {
  const std::string name("fam/\xff\n\"\x01/lock");
  const auto read = parse_baton_records(to_line({name, 1, 2, 3, {}, "", ""}));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].path, name);
}

}  // namespace
}  // namespace cacheshim
