// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "store/overlay/changes.h"
#include "store/overlay/copy_up.h"
#include "store/overlay/layer_upkeep.h"
#include "store/overlay/origin_log.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

// Tests which inode numbers the overlay shows for the base's "d/file", "d/link", "d/sub/below" and "e", from their
// copy-up to their removal.
class Origins : public OverlayTest {
 protected:
  Origins() {
    scratch_.write("base/d/file", "old");
    scratch_.write("base/d/sub/below", "old");
    scratch_.write("base/e", "old");
    std::filesystem::create_symlink("file", scratch_ / "base/d/link");
  }

  ino_t own(const std::string& path) const {
    struct stat st {};
    EXPECT_EQ(::lstat((scratch_ / path).c_str(), &st), 0) << path;
    return st.st_ino;
  }
  ino_t shown(const std::string& path) const {
    const auto found = overlay_.find(path);
    if (!found) return 0;
    return found->origin ? found->origin->inode : found->st.st_ino;
  }
  ino_t listed(const std::string& directory, const std::string& name) const {
    const auto entries = overlay_.list(directory);
    for (const ListedEntry& entry : *entries) {
      if (entry.name == name) return entry.ino;
    }
    return 0;
  }
  std::ptrdiff_t records() const {
    const std::string text = scratch_.read("work/origins");
    return std::count(text.begin(), text.end(), '\n');
  }
  void take_up_anew() { take_up_layer(overlay_); }
};

TEST_F(Origins, CopiesKeepTheirNumbersForTheNextDaemon) {
  for (const char* path : {"d/file", "d/link", "d/sub/below"}) {
    ASSERT_TRUE(copy_up(overlay_, path)) << path;
  }
  for (int daemon = 0; daemon < 3; ++daemon) {
    for (const char* path : {"d", "d/file", "d/link", "d/sub", "d/sub/below"}) {
      EXPECT_EQ(shown(path), own(std::string("base/") + path)) << path;
      EXPECT_NE(shown(path), own(std::string("upper/") + path)) << path;
    }
    EXPECT_EQ(listed("d", "file"), own("base/d/file"));
    EXPECT_EQ(listed("", "d"), own("base/d"));
    take_up_anew();
    EXPECT_EQ(records(), 5);
  }
}

TEST_F(Origins, RenamedCopiesKeepTheirNumbers) {
  const ino_t file = own("base/e");
  const ino_t directory = own("base/d");
  const ino_t below = own("base/d/sub/below");
  ASSERT_TRUE(changes::rename(overlay_, "e", "f", 0));
  ASSERT_TRUE(changes::rename(overlay_, "d", "moved", 0));
  take_up_anew();
  EXPECT_EQ(shown("f"), file);
  EXPECT_EQ(shown("moved"), directory);
  EXPECT_EQ(shown("moved/sub/below"), below);
}

TEST_F(Origins, NewObjectsHaveNone) {
  put("d/file2", "new");
  ASSERT_TRUE(changes::remove_file(overlay_, "e"));
  put("e", "another");
  EXPECT_EQ(shown("d/file2"), own("upper/d/file2"));
  EXPECT_EQ(shown("e"), own("upper/e"));
  take_up_anew();
  EXPECT_EQ(shown("e"), own("upper/e"));
}

TEST_F(Origins, RemovedCopiesLeaveNoRecords) {
  ASSERT_TRUE(copy_up(overlay_, "d/file"));
  ASSERT_TRUE(copy_up(overlay_, "d/sub/below"));
  ASSERT_TRUE(copy_up(overlay_, "d/link"));
  ASSERT_TRUE(copy_up(overlay_, "e"));
  put("new", "replaces");
  ASSERT_TRUE(changes::rename(overlay_, "new", "e", 0));
  ASSERT_TRUE(changes::remove_file(overlay_, "d/file"));
  ASSERT_TRUE(changes::remove_file(overlay_, "d/link"));
  ASSERT_TRUE(changes::remove_file(overlay_, "d/sub/below"));
  ASSERT_TRUE(changes::remove_dir(overlay_, "d/sub"));
  ASSERT_TRUE(changes::remove_dir(overlay_, "d"));
  take_up_anew();
  EXPECT_EQ(records(), 0);
}

TEST_F(Origins, ReplacedDirectoriesLeaveNoRecords) {
  std::filesystem::create_directories(scratch_ / "base/empty");
  scratch_.write("base/whited-out/file", "old");
  ASSERT_TRUE(copy_up(overlay_, "empty"));
  ASSERT_TRUE(changes::remove_file(overlay_, "whited-out/file"));
  for (const char* replaced : {"empty", "whited-out"}) {
    ASSERT_TRUE(changes::make_dir(overlay_, "new", 0755));
    ASSERT_TRUE(changes::rename(overlay_, "new", replaced, 0)) << replaced;
    EXPECT_EQ(shown(replaced), own(std::string("upper/") + replaced));
  }
  take_up_anew();
  EXPECT_EQ(records(), 0);
}

TEST_F(Origins, FailedRemovalsKeepTheNumber) {
  ASSERT_TRUE(copy_up(overlay_, "d/sub"));
  put("d/sub/own", "text");
  ASSERT_TRUE(changes::remove_dir(overlay_, "d/sub").failed_with(ENOTEMPTY));
  EXPECT_EQ(shown("d/sub"), own("base/d/sub"));
}

TEST_F(Origins, HardLinksShareOneNumberUntilTheLastNameIsRemoved) {
  std::filesystem::create_hard_link(scratch_ / "base/e", scratch_ / "base/e2");
  ASSERT_TRUE(copy_up(overlay_, "e"));
  ASSERT_TRUE(changes::link(overlay_, "e", "e3"));
  take_up_anew();
  for (const char* name : {"e", "e2", "e3"}) EXPECT_EQ(shown(name), own("base/e")) << name;
  ASSERT_TRUE(changes::remove_file(overlay_, "e"));
  ASSERT_TRUE(changes::remove_file(overlay_, "e3"));
  take_up_anew();
  EXPECT_EQ(shown("e2"), own("base/e"));  // the file is left only in the index of hard links
  ASSERT_TRUE(changes::remove_file(overlay_, "e2"));
  take_up_anew();
  EXPECT_EQ(records(), 0);
}

// Publishing drops the layer's file while another name of the file remains in the base.
TEST_F(Origins, DroppedFilesAreNoCopies) {
  ASSERT_TRUE(copy_up(overlay_, "e"));
  std::filesystem::create_hard_link(scratch_ / "upper/e", scratch_ / "published");
  ASSERT_TRUE(drop_file(overlay_, "e"));
  std::filesystem::create_hard_link(scratch_ / "published", scratch_ / "upper/e");
  EXPECT_EQ(shown("e"), own("upper/e"));
}

TEST_F(Origins, RecordOfAnotherObjectDoesNotCount) {
  ASSERT_TRUE(copy_up(overlay_, "e"));
  std::istringstream record(scratch_.read("work/origins"));
  std::string inode, handle, rest;
  std::getline(std::getline(std::getline(record, inode, ' '), handle, ' '), rest);
  scratch_.write("work/origins", inode + " 1" + handle + " " + rest + "\n");
  take_up_anew();
  EXPECT_EQ(shown("e"), own("upper/e"));
  EXPECT_EQ(records(), 0);
}

TEST_F(Origins, CopyUpThatFailsAtItsNameLeavesNoRecord) {
  steps_.then = [](CopyUpStep step) -> Status {
    return step == CopyUpStep::kIndexed ? Status(Errno(EIO)) : Status();
  };
  ASSERT_TRUE(copy_up(overlay_, "e").failed_with(EIO));
  steps_.then = nullptr;
  take_up_anew();
  EXPECT_EQ(records(), 0);
}

TEST_F(Origins, DamagedLogLosesNoMoreThanItsDamagedLines) {
  ASSERT_TRUE(copy_up(overlay_, "e"));
  ASSERT_TRUE(copy_up(overlay_, "d/file"));
  const std::string good = scratch_.read("work/origins");
  for (const std::string& damage :
       {std::string(100, '\0'), std::string("zz\n1 2\n1 2 3 4 5\n\n  \n-1\n"),
        std::string("ffffffffffffffffffffffff 1 1 1\n"), std::string("12"),
        std::string("1 2 ffffffffffff 4\n"), std::string(1 << 20, 'a')}) {
    scratch_.write("work/origins", good + damage);
    take_up_anew();
    EXPECT_EQ(shown("e"), own("base/e"));
    EXPECT_EQ(shown("d/file"), own("base/d/file"));
    EXPECT_EQ(records(), 3);  // one for each file, and one for the directory
  }
}

TEST_F(Origins, CopiesShowTheirOwnNumbersIfTheLogCannotBeWritten) {
  std::filesystem::create_directories(scratch_ / "work/origins/in-the-way");
  ASSERT_TRUE(copy_up(overlay_, "e"));
  EXPECT_EQ(shown("e"), own("base/e"));
  take_up_anew();
  EXPECT_EQ(get("e"), "old");
}

// Each copy and each removal adds a line to the log. The log must be rewritten even before the next mount, so that
// these lines do not accumulate.
TEST_F(Origins, LogIsRewrittenBeforeItGrowsTooLarge) {
  const LowerStack lowers({base_.get()});
  OriginLog log(lowers);
  const UniqueFd work = scratch_.open_dir("log");
  scratch_.write("log/copy", "text");
  log.begin_load(work.get());
  log.end_load();
  struct stat base {};
  ASSERT_EQ(::fstat(base_.get(), &base), 0);
  for (int round = 0; round < 5000; ++round) {
    log.add(work.get(), "copy", base);
    ASSERT_TRUE(log.remove(own("log/copy")));
  }
  log.add(work.get(), "copy", base);
  const std::string text = scratch_.read("log/origins");
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 1100);
  ASSERT_TRUE(log.find(own("log/copy")));
  EXPECT_EQ(log.find(own("log/copy"))->inode, base.st_ino);
  EXPECT_TRUE(log.sync());
}

}  // namespace
}  // namespace cacheshim
