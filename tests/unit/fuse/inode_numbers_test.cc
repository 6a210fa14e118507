// SPDX-License-Identifier: Apache-2.0
#include "fuse/nodes/inode_numbers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "fuse/nodes/node_table.h"

namespace cacheshim {
namespace {

constexpr ino_t kLarge = ino_t{1} << 48;

TEST(InodeNumbers, KeepTheNumbersOfTheFirstFileSystem) {
  InodeNumbers numbers;
  EXPECT_EQ(InodeNumbers::number(numbers.find_or_add(7), 1234), 1234U);
  EXPECT_EQ(InodeNumbers::number(numbers.find_or_add(7), kLarge - 1), kLarge - 1);
}

TEST(InodeNumbers, DistinguishEqualNumbersOfSeveralFileSystems) {
  InodeNumbers numbers;
  std::set<std::uint64_t> shown;
  for (const dev_t device : {10U, 20U, 30U, 20U, 10U}) {
    for (const ino_t inode : {ino_t{1}, ino_t{2}, kLarge - 1, kLarge, kLarge + 1, ~ino_t{0}}) {
      shown.insert(InodeNumbers::number(numbers.find_or_add(device), inode));
    }
  }
  EXPECT_EQ(shown.size(), 3U * 6U);
  // Bit 62 marks the numbers of the mount's own objects.
  EXPECT_LT(*shown.rbegin(), std::uint64_t{1} << 62);
}

TEST(InodeNumbers, RecognizeAFileSystem) {
  InodeNumbers numbers;
  EXPECT_FALSE(numbers.find(10));
  const auto place = numbers.find_or_add(10);
  (void)numbers.find_or_add(20);
  EXPECT_EQ(numbers.find(10), place);
  EXPECT_EQ(numbers.device(place), 10U);
}

struct stat file(dev_t device, ino_t inode) {
  struct stat st {};
  st.st_mode = S_IFREG | 0644;
  st.st_nlink = 1;
  st.st_dev = device;
  st.st_ino = inode;
  return st;
}

TEST(NodeTable, ShowsAndListsOneNumberPerObject) {
  NodeTable nodes;
  nodes.objects().add_device(1);
  const NodeIndex base = nodes.intern(kRootNode, "base", nullptr, {file(1, 55), false});
  const NodeIndex layer = nodes.intern(kRootNode, "layer", nullptr, {file(2, 55), true});
  EXPECT_EQ(nodes.info(base).ino, 55U);
  EXPECT_NE(nodes.info(layer).ino, 55U);
  EXPECT_EQ(nodes.objects().shown_inode(kRootNode, "layer", 2, 55), nodes.info(layer).ino);
  // A file that has not been looked up yet is listed with the inode number that its lookup will return.
  const auto listed = nodes.objects().shown_inode(kRootNode, "other", 3, 55);
  const NodeIndex other = nodes.intern(kRootNode, "other", nullptr, {file(3, 55), false});
  EXPECT_EQ(nodes.info(other).ino, listed);
}

TEST(NodeTable, ShowsACopyOnAnotherFileSystemWithItsOldNumber) {
  NodeTable nodes;
  nodes.objects().add_device(1);
  const NodeIndex node = nodes.intern(kRootNode, "file", nullptr, {file(1, 55), false});
  nodes.objects().moved(node, file(2, 66), true);
  EXPECT_EQ(nodes.info(node).ino, 55U);
  nodes.forget(node, 1);
  const Found copy{file(2, 66), true, OriginLog::Origin{1, 55}};
  const NodeIndex again = nodes.intern(kRootNode, "file", nullptr, copy);
  EXPECT_EQ(nodes.info(again).ino, 55U);
}

}  // namespace
}  // namespace cacheshim
