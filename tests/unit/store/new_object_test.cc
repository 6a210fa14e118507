// SPDX-License-Identifier: Apache-2.0
#include "store/sys/new_object.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sys/sys.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

class NewObjectTest : public ::testing::Test {
 protected:
  NewObjectTest() : before_(::umask(0)) {}
  ~NewObjectTest() override { (void)::umask(before_); }

  struct stat made(const std::string& name) const {
    const auto st = sys::stat_at(directory_.get(), name);
    EXPECT_TRUE(st) << name;
    struct stat none = {};
    return st ? *st : none;
  }
  mode_t mode_of(const std::string& name) const { return made(name).st_mode & 07777; }

  Scratch scratch_;
  UniqueFd directory_ = scratch_.open_dir("base");

 private:
  const mode_t before_;
};

Maker self(mode_t mask) { return {::geteuid(), ::getegid(), mask}; }

TEST_F(NewObjectTest, WithoutACreatorTheModeIsTheRequestedOne) {
  ASSERT_TRUE(make_file_as(directory_.get(), "file", O_WRONLY, 0666));
  ASSERT_TRUE(make_dir_as(directory_.get(), "directory", 0777));
  EXPECT_EQ(mode_of("file"), 0666U);
  EXPECT_EQ(mode_of("directory"), 0777U);
}

TEST_F(NewObjectTest, TheCreatorsUmaskIsApplied) {
  ASSERT_TRUE(make_file_as(directory_.get(), "file", O_WRONLY, NewObject(0666, 0, self(027))));
  ASSERT_TRUE(make_dir_as(directory_.get(), "directory", NewObject(01777, 0, self(077))));
  ASSERT_TRUE(make_node_as(directory_.get(), "fifo", NewObject(S_IFIFO | 0666, 0, self(022))));
  EXPECT_EQ(mode_of("file"), 0640U);
  EXPECT_EQ(mode_of("directory"), 01700U);
  EXPECT_EQ(mode_of("fifo"), 0644U);
}

TEST_F(NewObjectTest, SetIdBitsOfTheCreatorAreKept) {
  ASSERT_TRUE(make_file_as(directory_.get(), "file", O_WRONLY, NewObject(06755, 0, self(022))));
  EXPECT_EQ(mode_of("file"), 06755U);
}

TEST_F(NewObjectTest, AnExistingNameIsAnError) {
  ASSERT_TRUE(make_file_as(directory_.get(), "file", O_WRONLY, 0644));
  EXPECT_TRUE(make_file_as(directory_.get(), "file", O_WRONLY, 0644).failed_with(EEXIST));
  EXPECT_TRUE(
      make_symlink_as("x", directory_.get(), "file", NewObject(0, 0, self(0))).failed_with(EEXIST));
  EXPECT_EQ(mode_of("file"), 0644U);
}

// Tests the rules that need a root daemon; tests/parity tests the other rules through a mount.
TEST_F(NewObjectTest, BelongsToItsCreatorAndTheDirectorysGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give objects away";
  ASSERT_EQ(::fchown(directory_.get(), 0, 20009), 0);
  ASSERT_EQ(::fchmod(directory_.get(), 02777), 0);
  const Maker other{20001, 20001, 0};
  ASSERT_TRUE(make_file_as(directory_.get(), "file", O_WRONLY, NewObject(04711, 0, other)));
  ASSERT_TRUE(make_dir_as(directory_.get(), "directory", NewObject(0755, 0, other)));
  ASSERT_TRUE(make_symlink_as("x", directory_.get(), "link", NewObject(0777, 0, other)));
  for (const char* name : {"file", "directory", "link"}) {
    EXPECT_EQ(made(name).st_uid, 20001U) << name;
    EXPECT_EQ(made(name).st_gid, 20009U) << name;
  }
  EXPECT_EQ(mode_of("file"), 04711U);
  EXPECT_EQ(mode_of("directory"), 02755U);
}

TEST_F(NewObjectTest, TheParentDirectoryOfAPathDeterminesGroupAndMode) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give objects away";
  ASSERT_TRUE(make_dir_as(directory_.get(), "in", 0700));
  ASSERT_EQ(::fchownat(directory_.get(), "in", 0, 20009, 0), 0);
  ASSERT_EQ(::fchmodat(directory_.get(), "in", 02777, 0), 0);
  // The entries user::rwx, group::r-x and other::--- (linux/posix_acl_xattr.h).
  const std::string acl(
      "\2\0\0\0"
      "\1\0\7\0\377\377\377\377"
      "\4\0\5\0\377\377\377\377"
      "\40\0\0\0\377\377\377\377",
      28);
  const auto in = sys::open_beneath(directory_.get(), "in", O_RDONLY);
  const Status set = sys::set_xattr(in->get(), kDefaultAcl, acl, 0);
  if (set.failed_with(EOPNOTSUPP)) GTEST_SKIP() << "no ACLs here";
  ASSERT_TRUE(set);
  const NewObject wanted(0666, 0, Maker{20001, 20001, 077});
  ASSERT_TRUE(make_file_as(directory_.get(), "in/file", O_WRONLY, wanted));
  EXPECT_EQ(made("in/file").st_gid, 20009U);
  EXPECT_EQ(mode_of("in/file"), 0640U);
}

}  // namespace
}  // namespace cacheshim
