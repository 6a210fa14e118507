// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "store/overlay/lower_stack.h"
#include "store/sys/path_root.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

// Three lowers, "top" over "middle" over "bottom".
class LowerStackTest : public ::testing::Test {
 protected:
  std::string get(const std::string& path) const {
    const auto object = stack_.open(path, O_RDONLY);
    if (!object) return "<none>";
    const auto text = sys::read_all(object->fd.get());
    return text ? *text : "<error>";
  }
  std::vector<std::string> names(const std::string& path) const {
    std::vector<std::string> names;
    if (const auto entries = stack_.list(path)) {
      for (const sys::DirEntry& entry : *entries) names.push_back(entry.name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  void make_device_whiteout(const std::string& path) const {
    ASSERT_EQ(::mknod((scratch_ / path).c_str(), S_IFCHR | 0600, makedev(0, 0)), 0);
  }

  using Names = std::vector<std::string>;

  Scratch scratch_;
  UniqueFd top_ = scratch_.open_dir("top");
  UniqueFd middle_ = scratch_.open_dir("middle");
  UniqueFd bottom_ = scratch_.open_dir("bottom");
  LowerStack stack_{{top_.get(), middle_.get(), bottom_.get()}};
};

TEST_F(LowerStackTest, TheTopmostObjectIsFound) {
  scratch_.write("top/a/x", "top");
  scratch_.write("middle/a/x", "middle");
  scratch_.write("middle/a/y", "middle");
  scratch_.write("bottom/a/z", "bottom");
  EXPECT_EQ(get("a/x"), "top");
  EXPECT_EQ(get("a/y"), "middle");
  EXPECT_EQ(get("a/z"), "bottom");
  EXPECT_EQ(names("a"), (Names{"x", "y", "z"}));
  EXPECT_EQ(stack_.open("a/y", O_PATH)->lower, 1U);
}

TEST_F(LowerStackTest, WhiteoutsOfBothKindsHideWhatIsFurtherDown) {
  scratch_.write("top/.wh.x", "");
  scratch_.write("middle/x", "middle");
  scratch_.write("middle/d/file", "middle");
  scratch_.write("bottom/y", "bottom");
  scratch_.write("bottom/d/file", "bottom");
  make_device_whiteout("middle/y");
  make_device_whiteout("top/d");
  scratch_.write("top/.wh.e", "");
  scratch_.write("bottom/e/file", "bottom");
  EXPECT_EQ(get("x"), "<none>");
  EXPECT_EQ(get("y"), "<none>");
  EXPECT_TRUE(stack_.find("d/file").failed_with(ENOENT));
  EXPECT_TRUE(stack_.find("e/file").failed_with(ENOENT));
  EXPECT_EQ(names(""), Names{});
}

TEST_F(LowerStackTest, AWhiteoutHidesNothingOfItsOwnLower) {
  scratch_.write("top/.wh.x", "");
  scratch_.write("top/x", "top");
  scratch_.write("bottom/x", "bottom");
  EXPECT_EQ(get("x"), "top");
  EXPECT_EQ(names(""), Names{"x"});
}

TEST_F(LowerStackTest, OpaqueDirectoriesHideWhatIsFurtherDown) {
  scratch_.write("top/a/.wh..wh..opq", "");
  scratch_.write("middle/a/x", "middle");
  scratch_.write("middle/b/y", "middle");
  ASSERT_EQ(::setxattr((scratch_ / "middle/b").c_str(), "user.overlay.opaque", "y", 1, 0), 0);
  scratch_.write("bottom/b/z", "bottom");
  EXPECT_EQ(names("a"), Names{});
  EXPECT_EQ(get("a/x"), "<none>");
  EXPECT_EQ(names("b"), Names{"y"});
  EXPECT_EQ(get("b/z"), "<none>");
}

TEST_F(LowerStackTest, AFileHidesDirectoriesFurtherDown) {
  scratch_.write("top/a/x", "top");
  scratch_.write("middle/a", "a file");
  scratch_.write("bottom/a/y", "bottom");
  EXPECT_EQ(names("a"), Names{"x"});
  EXPECT_EQ(get("a/y"), "<none>");
  EXPECT_TRUE(stack_.find("a/x/deeper").failed_with(ENOTDIR));
}

TEST_F(LowerStackTest, SymlinksOnTheWayAreNotFollowed) {
  scratch_.write("bottom/real/x", "x");
  ASSERT_EQ(::symlink("real", (scratch_ / "bottom/link").c_str()), 0);
  EXPECT_TRUE(stack_.find("link/x").failed_with(ELOOP));
  EXPECT_TRUE(S_ISLNK(stack_.find("link")->st_mode));
}

TEST(LowerStack, ASingleLowerShowsNoWhiteoutsOfTheKernel) {
  const Scratch scratch;
  const UniqueFd directory = scratch.open_dir("base");
  ASSERT_EQ(::mknod((scratch / "base/x").c_str(), S_IFCHR | 0600, makedev(0, 0)), 0);
  const LowerStack stack({directory.get()});
  EXPECT_TRUE(stack.find("x").failed_with(ENOENT));
  EXPECT_TRUE(stack.list("")->empty());
}

void expect_no_symlink_followed(const Scratch& scratch) {
  const UniqueFd directory = scratch.open_dir("base");
  const PathRoot root(directory.get());
  EXPECT_EQ(root.stat("d/x")->st_size, 4);
  EXPECT_TRUE(root.stat("d/none").failed_with(ENOENT));
  EXPECT_TRUE(root.stat("link/x").failed_with(ELOOP));
  EXPECT_TRUE(root.stat("absolute/x").failed_with(ELOOP));
  EXPECT_TRUE(S_ISLNK(root.stat("link")->st_mode));
  EXPECT_TRUE(S_ISDIR(root.stat("")->st_mode));
}

TEST(PathRoot, FollowsNoSymlinkWithAndWithoutPrivilege) {
  const Scratch scratch;
  scratch.write("base/d/x", "text");
  ASSERT_EQ(::symlink("d", (scratch / "base/link").c_str()), 0);
  ASSERT_EQ(::symlink((scratch / "base/d").c_str(), (scratch / "base/absolute").c_str()), 0);
  expect_no_symlink_followed(scratch);
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(20001, 20001, 20001) != 0) ::_exit(2);
    expect_no_symlink_followed(scratch);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cacheshim
