// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "store/closing_record.h"
#include "tests/unit/overlay_fixture.h"

namespace cacheshim {
namespace {

// The family's "*.lock" are locks and its "*.all" are shared.
class LockFilesTest : public OverlayTest {
 protected:
  LockFilesTest() {
    profiles_.front().classes.emplace_back(NameClass::kLock, PathPattern("*.lock"));
    profiles_.front().classes.emplace_back(NameClass::kShared, PathPattern("*.all"));
    overlay_.share_locks(base_.get());
    EXPECT_TRUE(overlay_.make_dir("fam", 0755));
    EXPECT_TRUE(overlay_.make_dir("fam/entry", 0755));
  }
};

TEST_F(LockFilesTest, AreMadeInTheBaseOpenToAllAndAreFoundThere) {
  put("fam/entry/x.lock", "");
  struct stat st {};
  ASSERT_EQ(::stat((scratch_ / "base/fam/entry/x.lock").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0666U);
  EXPECT_FALSE(scratch_.exists("upper/fam/entry/x.lock"));
  EXPECT_TRUE(overlay_.is_shared_lock("fam/entry/x.lock"));
  const auto found = overlay_.find("fam/entry/x.lock");
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->in_upper);
  EXPECT_EQ(found->st.st_ino, st.st_ino);
  EXPECT_TRUE(overlay_.create_file("fam/entry/x.lock", O_WRONLY, 0644).failed_with(EEXIST));
}

TEST_F(LockFilesTest, AreNotCopiedUpAndListedThoughTheEntryIsOpaque) {
  put("fam/entry/x.lock", "");
  put("fam/entry/file", "of the layer");  // begins the entry, which the base has not
  EXPECT_EQ(names("fam/entry"), (Names{"file", "x.lock"}));
  ASSERT_TRUE(overlay_.copy_up("fam/entry/x.lock"));
  EXPECT_FALSE(scratch_.exists("upper/fam/entry/x.lock"));
  EXPECT_TRUE(scratch_.exists("upper/fam/entry/.wh..wh..opq"));
}

TEST_F(LockFilesTest, HiddenOnesAreGoneFromThisViewAloneUntilMadeAgain) {
  put("fam/entry/x.lock", "");
  overlay_.hide_lock("fam/entry/x.lock");
  EXPECT_TRUE(overlay_.find("fam/entry/x.lock").failed_with(ENOENT));
  EXPECT_EQ(names("fam/entry"), Names{});
  EXPECT_TRUE(scratch_.exists("base/fam/entry/x.lock"));
  const auto before = sys::stat_at(base_.get(), "fam/entry/x.lock");
  put("fam/entry/x.lock", "again");
  EXPECT_EQ(sys::stat_at(base_.get(), "fam/entry/x.lock")->st_ino, before->st_ino);
}

TEST_F(LockFilesTest, FoldersOfSuchNamesAreFolders) {
  ASSERT_TRUE(overlay_.make_dir("fam/entry/d.lock", 0755));
  EXPECT_FALSE(overlay_.is_shared_lock("fam/entry/d.lock"));
  EXPECT_TRUE(scratch_.exists("upper/fam/entry/d.lock"));
  put("fam/entry/d.lock/file", "x");
  EXPECT_EQ(get("fam/entry/d.lock/file"), "x");
}

TEST_F(LockFilesTest, LocksAreNotRenamedButWhatIsSharedIs) {
  put("fam/entry/x.lock", "");
  put("fam/entry/new.all", "new");
  put("fam/entry/it.all", "old");
  put("fam/entry/file", "private");
  EXPECT_TRUE(overlay_.rename("fam/entry/x.lock", "fam/entry/y", 0).failed_with(EXDEV));
  EXPECT_TRUE(overlay_.rename("fam/entry/file", "fam/entry/x.lock", 0).failed_with(EXDEV));
  EXPECT_TRUE(overlay_.rename("fam/entry/new.all", "fam/entry/x.lock", 0).failed_with(EXDEV));
  EXPECT_TRUE(overlay_.link("fam/entry/x.lock", "fam/entry/y").failed_with(EPERM));
  ASSERT_TRUE(overlay_.rename("fam/entry/new.all", "fam/entry/it.all", 0));
  EXPECT_EQ(scratch_.read("base/fam/entry/it.all"), "new");
  EXPECT_FALSE(scratch_.exists("base/fam/entry/new.all"));
}

TEST_F(LockFilesTest, WithoutSharingTheyAreTheLayersOwn) {
  overlay_.share_locks(-1);
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
  scratch.write("run.closed", "{}");  // of before there were cycles
  EXPECT_EQ(recorded_closing(run_dir), "0");
  scratch.write("run.closed", R"({"cycle": "4", "why": {"signal": 15}})");
  EXPECT_EQ(recorded_closing(run_dir), "4");
  scratch.write("run.closed", "{\"cycle");  // torn
  EXPECT_EQ(recorded_closing(run_dir), std::nullopt);
  forget_closing(run_dir);
  EXPECT_FALSE(scratch.exists("run.closed"));
  EXPECT_TRUE(record_closing("", "3"));  // no run folder: no record, and no failure
}

}  // namespace
}  // namespace cacheshim
