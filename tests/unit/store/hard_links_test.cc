// SPDX-License-Identifier: Apache-2.0
#include <linux/fs.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <iterator>

#include "store/overlay/changes.h"
#include "store/overlay/copy_up.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

// A file of the base with two names, "a/x" and "a/y".
class HardLinks : public OverlayTest {
 protected:
  HardLinks() {
    scratch_.write("base/a/x", "old");
    std::filesystem::create_hard_link(scratch_ / "base/a/x", scratch_ / "base/a/y");
  }
  void write(const std::string& path, const std::string& text) {
    const auto fd = open_writable(overlay_, path, O_WRONLY | O_TRUNC);
    ASSERT_TRUE(fd);
    ASSERT_TRUE(sys::write_all(fd->get(), text));
  }
  nlink_t links(const std::string& path) const { return overlay_.find(path)->st.st_nlink; }
  bool are_one(const std::string& one, const std::string& other) const {
    const auto left = overlay_.find(one);
    const auto right = overlay_.find(other);
    return left->st.st_dev == right->st.st_dev && left->st.st_ino == right->st.st_ino &&
           left->st.st_nlink == right->st.st_nlink;
  }
  std::ptrdiff_t records() const {
    return std::distance(std::filesystem::directory_iterator(scratch_ / "work/index"), {});
  }
};

TEST_F(HardLinks, WritesByOneNameAreVisibleByTheOther) {
  write("a/x", "new");
  EXPECT_EQ(get("a/y"), "new");
  EXPECT_TRUE(are_one("a/x", "a/y"));
  EXPECT_EQ(links("a/x"), 2U);
  write("a/y", "newer");
  EXPECT_EQ(get("a/x"), "newer");
  EXPECT_TRUE(are_one("a/x", "a/y"));
  EXPECT_EQ(links("a/y"), 2U);
  EXPECT_EQ(counters_.copy_ups, 1U);
  EXPECT_EQ(scratch_.read("base/a/y"), "old");
}

TEST_F(HardLinks, TheNextDaemonKeepsHardLinks) {
  write("a/x", "new");
  take_up_layer(overlay_);
  EXPECT_EQ(get("a/y"), "new");
  EXPECT_EQ(links("a/y"), 2U);
  EXPECT_TRUE(are_one("a/x", "a/y"));
}

TEST_F(HardLinks, RemovedNamesAreCounted) {
  ASSERT_TRUE(changes::remove_file(overlay_, "a/x"));
  EXPECT_EQ(links("a/y"), 1U);
  take_up_layer(overlay_);
  EXPECT_EQ(links("a/y"), 1U);
  write("a/y", "new");
  EXPECT_EQ(links("a/y"), 1U);
  EXPECT_EQ(records(), 1);
  ASSERT_TRUE(changes::link(overlay_, "a/y", "a/z"));
  EXPECT_EQ(links("a/y"), 2U);
}

TEST_F(HardLinks, NameCopiedUpAndRemovedLeavesItsDataToTheOther) {
  write("a/x", "new");
  ASSERT_TRUE(changes::remove_file(overlay_, "a/x"));
  EXPECT_EQ(get("a/y"), "new");
  EXPECT_EQ(links("a/y"), 1U);
  ASSERT_TRUE(changes::remove_file(overlay_, "a/y"));
  EXPECT_EQ(names("a"), Names{});
  EXPECT_EQ(records(), 0);
}

TEST_F(HardLinks, RenameOntoTheOtherNameDoesNothing) {
  ASSERT_TRUE(changes::rename(overlay_, "a/x", "a/y", 0));
  EXPECT_EQ(names("a"), (Names{"x", "y"}));
  write("a/x", "new");
  ASSERT_TRUE(changes::rename(overlay_, "a/x", "a/y", 0));
  ASSERT_TRUE(changes::rename(overlay_, "a/y", "a/x", RENAME_EXCHANGE));
  EXPECT_EQ(names("a"), (Names{"x", "y"}));
  EXPECT_EQ(links("a/y"), 2U);
}

TEST_F(HardLinks, NameThatIsRenamedOverIsCounted) {
  put("a/z", "other");
  ASSERT_TRUE(changes::rename(overlay_, "a/z", "a/x", 0));
  EXPECT_EQ(links("a/y"), 1U);
  EXPECT_EQ(get("a/y"), "old");
}

TEST_F(HardLinks, RenamedNameStaysALink) {
  ASSERT_TRUE(changes::rename(overlay_, "a/x", "a/z", 0));
  EXPECT_EQ(links("a/y"), 2U);
  write("a/y", "new");
  EXPECT_EQ(get("a/z"), "new");
  ASSERT_TRUE(changes::rename(overlay_, "a", "b", 0));
  EXPECT_TRUE(are_one("b/y", "b/z"));
  EXPECT_EQ(links("b/y"), 2U);
}

TEST_F(HardLinks, SeveralLowersKeepTheirFilesApart) {
  const UniqueFd other = scratch_.open_dir("other");
  scratch_.write("other/b/x", "other");
  std::filesystem::create_hard_link(scratch_ / "other/b/x", scratch_ / "other/b/y");
  Overlay overlay({base_.get(), other.get()}, entries_, counters_);
  take_up_layer(overlay);
  ASSERT_TRUE(open_writable(overlay, "b/x", O_WRONLY | O_TRUNC));
  EXPECT_EQ(overlay.find("b/y")->st.st_size, 0);
  EXPECT_EQ(overlay.find("a/y")->st.st_size, 3);
}

// Files on two file systems may have the same handle.
TEST_F(HardLinks, KeysDistinguishTheLowers) {
  const auto file = sys::open_path(scratch_ / "base/a/x", O_RDONLY);
  EXPECT_EQ(*LinkIndex::key_of(file->get(), 1), *LinkIndex::key_of(file->get(), 1));
  EXPECT_NE(*LinkIndex::key_of(file->get(), 0), *LinkIndex::key_of(file->get(), 1));
}

}  // namespace
}  // namespace cacheshim
