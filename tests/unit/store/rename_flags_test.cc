// SPDX-License-Identifier: Apache-2.0
#include "store/sys/rename_flags.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/support/scratch.h"

// Meson runs these tests, and all others of this program, a second time without the flags of renameat2(2).
namespace cacheshim {
namespace {

class RenameFlagsTest : public ::testing::Test {
 protected:
  RenameFlagsTest() { dir_ = *sys::open_path(scratch_.path(), O_RDONLY | O_DIRECTORY); }

  void make_dir(const std::string& name) const {
    ASSERT_TRUE(sys::make_dir_at(dir_.get(), name, 0755));
  }
  Status rename_new(const std::string& name, const std::string& new_name) const {
    return sys::rename_new_at(dir_.get(), name, dir_.get(), new_name);
  }
  Status displace(const std::string& from, const std::string& to, const std::string& aside) const {
    return sys::displace_at({dir_.get(), from}, {dir_.get(), to}, {dir_.get(), aside});
  }
  std::size_t count_names() const { return sys::list_dir(dir_.get())->size(); }

  Scratch scratch_;
  UniqueFd dir_;
};

TEST_F(RenameFlagsTest, AFileGetsAFreeName) {
  scratch_.write("a", "A");
  EXPECT_TRUE(rename_new("a", "b"));
  EXPECT_EQ(scratch_.read("b"), "A");
  EXPECT_EQ(count_names(), 1U);
}

TEST_F(RenameFlagsTest, AFileReplacesNothing) {
  scratch_.write("a", "A");
  scratch_.write("b", "B");
  make_dir("c");
  EXPECT_EQ(rename_new("a", "b").error(), Errno(EEXIST));
  EXPECT_EQ(rename_new("a", "c").error(), Errno(EEXIST));
  EXPECT_EQ(scratch_.read("a") + scratch_.read("b"), "AB");
}

TEST_F(RenameFlagsTest, ASymlinkItselfGetsTheName) {
  ASSERT_TRUE(sys::make_symlink_at("nowhere", dir_.get(), "a"));
  EXPECT_TRUE(rename_new("a", "b"));
  EXPECT_EQ(*sys::read_link_at(dir_.get(), "b"), "nowhere");
}

TEST_F(RenameFlagsTest, ADirectoryReplacesNoFileAndNoFullDirectory) {
  scratch_.write("a/x", "X");
  scratch_.write("b", "B");
  scratch_.write("c/y", "Y");
  EXPECT_EQ(rename_new("a", "b").error(), Errno(EEXIST));
  EXPECT_EQ(rename_new("a", "c").error(), Errno(EEXIST));
  EXPECT_TRUE(rename_new("a", "d"));
  EXPECT_EQ(scratch_.read("d/x") + scratch_.read("b") + scratch_.read("c/y"), "XBY");
}

TEST_F(RenameFlagsTest, AMissingObjectGivesENOENT) {
  EXPECT_EQ(rename_new("a", "b").error(), Errno(ENOENT));
  scratch_.write("b", "B");
  EXPECT_EQ(displace("a", "b", "old").error(), Errno(ENOENT));
  EXPECT_EQ(displace("b", "a", "old").error(), Errno(ENOENT));
  EXPECT_EQ(scratch_.read("b"), "B");
  EXPECT_EQ(count_names(), 1U);
}

TEST_F(RenameFlagsTest, DisplacesAnObject) {
  scratch_.write("a/x", "new");
  scratch_.write("b/x", "old");
  EXPECT_TRUE(displace("a", "b", "aside"));
  EXPECT_EQ(scratch_.read("b/x") + scratch_.read("aside/x"), "newold");
  EXPECT_EQ(count_names(), 2U);
}

TEST_F(RenameFlagsTest, AFailedDisplacementChangesNothing) {
  scratch_.write("a", "A");
  scratch_.write("b", "B");
  EXPECT_EQ(displace("a", "b", "no/aside").error(), Errno(ENOENT));
  EXPECT_EQ(scratch_.read("a") + scratch_.read("b"), "AB");
}

TEST_F(RenameFlagsTest, TheProbeLeavesNoFile) {
  const auto support = sys::probe_renames(dir_.get());
  ASSERT_TRUE(support);
  EXPECT_NE(*support, sys::RenameSupport::kNone);
  EXPECT_EQ(count_names(), 0U);
}

TEST_F(RenameFlagsTest, TheProbeFailsInAMissingDirectory) {
  EXPECT_EQ(sys::probe_renames(-1).error(), Errno(EBADF));
}

}  // namespace
}  // namespace cacheshim
