// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "store/layer/layer_index.h"
#include "store/overlay/layer_units.h"
#include "store/overlay/layer_upkeep.h"
#include "store/sys/name_table.h"
#include "store/sys/tree_walk.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

using Names = std::vector<std::string>;

// Creates `depth` nested directories "d" below `top`. Creates each relative to its parent, because the path may be too
// long for one call.
void make_chain(int top, int depth) {
  UniqueFd deepest(::openat(top, ".", O_PATH | O_CLOEXEC));
  for (int i = 0; i < depth; ++i) {
    ASSERT_EQ(::mkdirat(deepest.get(), "d", 0755), 0);
    deepest = UniqueFd(::openat(deepest.get(), "d", O_PATH | O_CLOEXEC));
  }
}

Status descend(const WalkedDirectory& directory) {
  for (const sys::DirEntry& entry : directory.entries) {
    if (is_directory(directory.fd, entry)) directory.further.push_back(entry.name);
  }
  return {};
}

// The destructor removes "top", because std::filesystem::remove_all(), which ~Scratch() calls, needs
// one descriptor per level.
class TreeWalkTest : public ::testing::Test {
 protected:
  ~TreeWalkTest() override { (void)sys::remove_tree(root_.get(), "top"); }
  Scratch scratch_;
  UniqueFd root_ = scratch_.open_dir("");
  UniqueFd top_ = scratch_.open_dir("top");
};

TEST_F(TreeWalkTest, VisitsParentsFirstAndOnlyWhatIsAskedFor) {
  for (const char* path : {"top/a/x/y", "top/b", "top/c/z"})
    std::filesystem::create_directories(scratch_ / path);
  scratch_.write("top/a/file", "");
  std::filesystem::create_symlink("a", scratch_ / "top/link");
  Names visited;
  ASSERT_TRUE(walk_tree(root_.get(), "top", [&](const WalkedDirectory& directory) {
    visited.push_back(directory.path);
    return directory.path == "top/c" ? Status() : descend(directory);
  }));
  EXPECT_EQ(visited.front(), "top");
  EXPECT_LT(std::find(visited.begin(), visited.end(), "top/a"),
            std::find(visited.begin(), visited.end(), "top/a/x"));
  std::sort(visited.begin(), visited.end());
  EXPECT_EQ(visited, (Names{"top", "top/a", "top/a/x", "top/a/x/y", "top/b", "top/c"}));
}

TEST_F(TreeWalkTest, TheRootItselfHasAnEmptyPath) {
  std::filesystem::create_directories(scratch_ / "top/a/b");
  Names visited;
  ASSERT_TRUE(walk_tree(top_.get(), "", [&](const WalkedDirectory& directory) {
    visited.push_back(directory.path);
    return descend(directory);
  }));
  EXPECT_EQ(visited, (Names{"", "a", "a/b"}));
}

TEST_F(TreeWalkTest, ADeepTreeTakesFewDescriptors) {
  constexpr int kDepth = 3000;
  make_chain(top_.get(), kDepth);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{kMostOpen + 32, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  int visited = 0;
  std::size_t longest = 0;
  const Status walked = walk_tree(top_.get(), "", [&](const WalkedDirectory& directory) {
    ++visited;
    longest = std::max(longest, directory.path.size());
    return descend(directory);
  });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(walked);
  EXPECT_EQ(visited, kDepth + 1);
  EXPECT_EQ(longest, std::size_t{kDepth} * 2 - 1);
}

// If a directory lists "d" last, the walk enters "d" first. It visits "a" and "b" only after it has come back from "d".
// By then, it has closed the directory's descriptor.
TEST_F(TreeWalkTest, ComesBackToDirectoriesWhoseDescriptorsItHasClosed) {
  std::string path = "top";
  for (std::size_t depth = 0; depth < 3 * kMostOpen; ++depth) {
    for (const char* name : {"/a", "/b"})
      std::filesystem::create_directories(scratch_ / (path + name));
    path += "/d";
    std::filesystem::create_directories(scratch_ / path);
  }
  std::set<std::string> visited;
  ASSERT_TRUE(walk_tree(root_.get(), "top", [&](const WalkedDirectory& directory) {
    visited.insert(directory.path);
    return descend(directory);
  }));
  EXPECT_EQ(visited.size(), 3 * kMostOpen * 3 + 1);
}

TEST_F(TreeWalkTest, SkipsWhatIsRemovedOrMovedMeanwhile) {
  std::string path = "top";
  for (std::size_t depth = 0; depth < 2 * kMostOpen; ++depth)
    std::filesystem::create_directories(scratch_ / (path += "/d"));
  std::filesystem::create_directories(scratch_ / "top/d/z");
  std::size_t visited = 0;
  ASSERT_TRUE(walk_tree(root_.get(), "top", [&](const WalkedDirectory& directory) {
    if (++visited == 2 * kMostOpen) {  // deep below "top/d", whose descriptor is closed by now
      std::filesystem::rename(scratch_ / "top/d/d", scratch_ / "moved");
      std::filesystem::remove(scratch_ / "top/d/z");
    }
    return descend(directory);
  }));
  EXPECT_GE(visited, 2 * kMostOpen);
}

TEST_F(TreeWalkTest, AnErrorOfTheVisitorEndsTheWalk) {
  std::filesystem::create_directories(scratch_ / "top/a/b");
  int visited = 0;
  EXPECT_TRUE(walk_tree(root_.get(), "top", [&](const WalkedDirectory& directory) {
                if (++visited == 2) return Status(Errno(EIO));
                return descend(directory);
              }).failed_with(EIO));
  EXPECT_EQ(visited, 2);
  EXPECT_TRUE(walk_tree(root_.get(), "none", descend).failed_with(ENOENT));
}

// ---- the paths of a view

class DeepLayerTest : public OverlayTest {
 protected:
  ~DeepLayerTest() override { (void)sys::remove_tree(root_.get(), "upper"); }

  // Creates nested directories until the first error. Returns the path of the deepest one.
  std::string make_deep(const std::string& top) {
    EXPECT_TRUE(changes::make_dir(overlay_, top, 0755));
    std::string path = top;
    const std::string name(200, 'n');
    for (;;) {
      const Status made = changes::make_dir(overlay_, path + "/" + name, 0755);
      if (!made) {
        EXPECT_TRUE(made.failed_with(ENAMETOOLONG));
        return path;
      }
      path += "/" + name;
    }
  }

  UniqueFd root_ = scratch_.open_dir("");
};

TEST_F(DeepLayerTest, PathsHaveALimitThatRenamesCannotExceed) {
  const std::string deep = make_deep("deep");
  EXPECT_LE(deep.size(), kMostPathBytes);
  EXPECT_GT(deep.size() + 201, kMostPathBytes);
  const std::string other = make_deep("other");
  for (const unsigned flags : {0U, static_cast<unsigned>(RENAME_EXCHANGE)}) {
    const std::string target =
        other.substr(0, other.rfind('/')) + (flags == 0 ? "/x" : other.substr(other.rfind('/')));
    EXPECT_TRUE(changes::rename(overlay_, "deep", target, flags).failed_with(ENAMETOOLONG));
  }
  EXPECT_TRUE(overlay_.find(deep));
  EXPECT_TRUE(changes::rename(overlay_, "deep", "peer", 0));
  EXPECT_TRUE(overlay_.find("peer" + deep.substr(4)));
}

// An earlier version accepted deeper trees.
TEST_F(DeepLayerTest, ALayerWithADeeperTreeIsTakenUpAndListed) {
  constexpr int kDepth = 6000;
  const UniqueFd upper = scratch_.open_dir("upper");
  make_chain(upper.get(), kDepth);
  take_up_layer(overlay_);
  std::string path = "d";
  for (int i = 1; i < kDepth; ++i) path += "/d";
  EXPECT_TRUE(overlay_.state.index.has_directory(path));
  EXPECT_EQ(list_layer(overlay_, entries_).units.size(), 0U);
  EXPECT_TRUE(changes::make_dir(overlay_, path + "/more", 0755).failed_with(ENAMETOOLONG));
}

TEST(LayerIndexLoader, FindsDirectoriesInTheOrderOfAWalk) {
  LayerIndex index;
  LayerIndex::Loader loader(index);
  for (const char* path : {"a", "ab", "ab/x", "ab/x/y", "ab/xy", "a/x", "a/x/z"})
    loader.add_directory(path);
  loader.add_opaque("ab/x");
  loader.add_whiteout_marker("a/x", ".wh.gone");
  loader.add_whiteout_marker("", ".wh.top");
  for (const char* path : {"a", "ab", "ab/x", "ab/x/y", "ab/xy", "a/x", "a/x/z"})
    EXPECT_TRUE(index.has_directory(path)) << path;
  EXPECT_FALSE(index.has_directory("a/xy"));
  EXPECT_TRUE(index.is_opaque("ab/x"));
  EXPECT_TRUE(index.has_whiteout("a/x/gone"));
  EXPECT_TRUE(index.has_whiteout("top"));
  EXPECT_EQ(index.longest_below("ab"), std::string("x/y").size());
  EXPECT_EQ(index.longest_below("none"), 0U);
}

TEST(LayerIndex, TellsWhichPartOfAPathHidesIt) {
  LayerIndex index;
  for (const char* path : {"a", "a/b", "a/b/c"}) index.add_directory(path);
  index.add_opaque("a/b");
  EXPECT_EQ(index.place_of("a/b/c/d").hider, "a/b");
  EXPECT_FALSE(index.place_of("a/b/c/d").is_whiteout);
  EXPECT_EQ(index.place_of("a/b").hider, "");
  index.add_whiteout("a/b/c/d");
  EXPECT_EQ(index.place_of("a/b/c/d/e").hider, "a/b/c/d");
  EXPECT_TRUE(index.place_of("a/b/c/d/e").is_whiteout);
}

// ---- NameTable

TEST(NameTable, IsFullAtItsLimitAndAcceptsKnownNames) {
  NameTable<int> table(4096);
  int added = 0;
  while (int* const value = table.find_or_add("name" + std::to_string(added))) *value = added++;
  EXPECT_GT(added, 10);
  EXPECT_LT(added, 41);
  ASSERT_NE(table.find_or_add("name1"), nullptr);
  EXPECT_EQ(*table.find("name1"), 1);
  EXPECT_EQ(table.find("name" + std::to_string(added)), nullptr);
  EXPECT_TRUE(table.erase("name0"));
  EXPECT_FALSE(table.erase("name0"));
  EXPECT_NE(table.find_or_add("nameX"), nullptr);
  EXPECT_EQ(table.take().size(), static_cast<std::size_t>(added));
  EXPECT_NE(table.find_or_add(std::string(3000, 'x')), nullptr);
}

}  // namespace
}  // namespace cacheshim
