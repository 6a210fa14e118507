// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <set>
#include <string>

#include "fuse/nodes/node_table.h"
#include "store/sys/sys.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

struct stat object(mode_t type, ino_t inode, nlink_t links = 1) {
  struct stat st {};
  st.st_mode = type | 0644;
  st.st_ino = inode;
  st.st_dev = 7;
  st.st_nlink = links;
  return st;
}

// A view's root that contains a directory "d".
class NodeTableTest : public ::testing::Test {
 protected:
  NodeIndex file(const std::string& name, ino_t inode, bool in_upper = false, nlink_t links = 1) {
    return nodes_.intern(directory_, name, nullptr, {object(S_IFREG, inode, links), in_upper});
  }
  std::string path(NodeIndex node) {
    const auto path = nodes_.path(node);
    return path ? *path : "<stale>";
  }

  NodeTable nodes_;
  NodeIndex jobs_ = nodes_.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir);
  NodeIndex root_ = nodes_.intern_own(jobs_, "job", NodeKind::kObject);
  NodeIndex directory_ = nodes_.intern(root_, "d", nullptr, {object(S_IFDIR, 1), false});
};

TEST_F(NodeTableTest, PathsBeginAtTheViewsRoot) {
  EXPECT_EQ(path(root_), "");
  EXPECT_TRUE(nodes_.info(root_).is_view_root);
  EXPECT_EQ(path(file("x", 2)), "d/x");
  EXPECT_FALSE(nodes_.info(directory_).is_view_root);
}

TEST_F(NodeTableTest, ForgottenNodesAreFreedWithTheDirectoriesAboveThem) {
  const std::uint32_t before = nodes_.size();
  const NodeIndex x = file("x", 2);
  nodes_.forget(directory_, 1);
  EXPECT_EQ(path(x), "d/x");  // a directory's node stays until the nodes of its children are forgotten
  nodes_.forget(x, 1);
  EXPECT_EQ(nodes_.size(), before - 1);
  EXPECT_EQ(nodes_.names().find(root_, "d"), 0U);
}

// When a node changes to another object, the table must forget that the node stood for the former object. Otherwise, a
// lookup of another hard link of the former object could return the node after the table has freed it.
class NodeThatChangesItsObject : public NodeTableTest {
 protected:
  // Frees the node, and then looks up another hard link of its former object, whose inode number is `first`.
  void expect_not_found_again(NodeIndex node, ino_t first) {
    nodes_.forget(node, 1);
    EXPECT_EQ(path(file("other", first, true, 2)), "d/other");
    EXPECT_EQ(nodes_.size(), size_);
  }

  const NodeIndex node_ = file("x", 2, true, 2);
  const std::uint32_t size_ = nodes_.size();
};

TEST_F(NodeThatChangesItsObject, IsNotFoundByItsFormerObjectAfterPublishing) {
  nodes_.objects().published(directory_, "x", object(S_IFREG, 3));
  expect_not_found_again(node_, 2);
}

TEST_F(NodeThatChangesItsObject, IsNotFoundByItsFormerObjectAfterACopyWithoutName) {
  nodes_.names().remove(directory_, "x", {});
  const Scratch scratch;
  scratch.write("copy", "");
  nodes_.objects().copied_nameless(node_, object(S_IFREG, 3),
                                   *sys::open_path(scratch / "copy", O_PATH));
  expect_not_found_again(node_, 2);
}

TEST_F(NodeThatChangesItsObject, IsNotFoundByItsFormerObjectAfterALink) {
  nodes_.names().add_link(node_, directory_, "link", object(S_IFREG, 3, 2));
  expect_not_found_again(node_, 2);
}

TEST_F(NodeTableTest, CopyUpKeepsNodeAndInodeNumber) {
  const NodeIndex before = file("x", 2);
  const auto ino = nodes_.info(before).ino;
  const NodeIndex after = file("x", 99, true);
  EXPECT_EQ(after, before);
  EXPECT_EQ(nodes_.info(after).ino, ino);
}

TEST_F(NodeTableTest, AReplacedBaseFileIsAnotherNode) {
  const NodeIndex before = file("x", 2);
  const NodeIndex after = file("x", 3);
  EXPECT_NE(after, before);
  EXPECT_EQ(path(before), "<stale>");
  EXPECT_TRUE(nodes_.objects().is_current(after, object(S_IFREG, 3), false));
  EXPECT_FALSE(nodes_.objects().is_current(after, object(S_IFREG, 4), false));
}

TEST_F(NodeTableTest, HardLinksInTheLayerShareANode) {
  const NodeIndex x = file("x", 2, true);
  nodes_.names().add_link(x, directory_, "y", object(S_IFREG, 2, 2));
  EXPECT_EQ(file("y", 2, true, 2), x);
  nodes_.names().remove(directory_, "x", {});
  EXPECT_EQ(path(x), "d/y");
  EXPECT_FALSE(nodes_.info(x).removed);
}

TEST_F(NodeTableTest, PublishingOneOfTwoNamesSeparatesThem) {
  const NodeIndex x = file("x", 2, true);
  nodes_.names().add_link(x, directory_, "y", object(S_IFREG, 2, 2));
  nodes_.objects().published(directory_, "x", object(S_IFREG, 50));
  EXPECT_EQ(path(x), "d/y");
  EXPECT_NE(file("x", 50), x);
}

TEST_F(NodeTableTest, MovedDataChangeOnlyTheEpoch) {
  const NodeIndex x = file("x", 2, true);
  const auto epoch = nodes_.state(x).epoch();
  nodes_.objects().published(directory_, "x", object(S_IFREG, 2));
  EXPECT_NE(nodes_.state(x).epoch(), epoch);
  EXPECT_EQ(file("x", 2), x);
}

TEST_F(NodeTableTest, ARemovedObjectKeepsItsDescriptor) {
  const Scratch scratch;
  const NodeIndex x = file("x", 2);
  UniqueFd fd = scratch.open_dir("kept");
  const int number = fd.get();
  nodes_.names().remove(directory_, "x", {{std::move(fd), Charge()}, true});
  EXPECT_TRUE(nodes_.info(x).removed);
  EXPECT_EQ(nodes_.info(x).object_fd(), number);
  EXPECT_EQ(path(x), "<stale>");
}

TEST_F(NodeTableTest, ACommonFileKeepsItsDescriptorWhenItsNameLeadsElsewhere) {
  const Scratch scratch;
  const auto lock = [&](ino_t inode, const std::string& directory) {
    return nodes_.intern_common(
        directory_, "x", nullptr,
        {CommonKind::kLock, object(S_IFREG, inode), scratch.open_dir(directory)});
  };
  const NodeIndex x = lock(2, "one");
  const int held = nodes_.info(x).object_fd();
  EXPECT_GE(held, 0);
  EXPECT_EQ(lock(2, "one"), x);
  EXPECT_EQ(nodes_.info(x).object_fd(), held);
  EXPECT_NE(lock(3, "other"), x);
  EXPECT_TRUE(nodes_.info(x).removed);
  EXPECT_FALSE(nodes_.info(x).was_unlinked);
  EXPECT_EQ(nodes_.info(x).object_fd(), held);
}

// Processes outside the mount may hard-link lock files. Under the name of a lock file, the file is
// common to all jobs; under any other name, it belongs to one job.
TEST_F(NodeTableTest, HardLinksOfACommonFileHaveNodesOfTheirOwn) {
  const Scratch scratch;
  const auto lock = [&](const char* name) {
    return nodes_.intern_common(directory_, name, nullptr,
                                {CommonKind::kLock, object(S_IFREG, 2, 4), scratch.open_dir(name)});
  };
  const auto plain = [&](const char* name) { return file(name, 2, false, 4); };
  const std::set<NodeIndex> nodes = {plain("before"), lock("a.lock"), lock("b.lock"),
                                     plain("after")};
  std::map<std::string, CommonKind> kinds;
  for (const NodeIndex node : nodes) kinds[path(node)] = nodes_.info(node).common;
  const std::map<std::string, CommonKind> expected = {{"d/before", CommonKind::kNone},
                                                      {"d/a.lock", CommonKind::kLock},
                                                      {"d/b.lock", CommonKind::kLock}};
  EXPECT_EQ(kinds, expected);
  EXPECT_EQ(nodes_.names().find(directory_, "after"), nodes_.names().find(directory_, "before"));
}

TEST_F(NodeTableTest, AnUnlinkedCommonFileIsReported) {
  const Scratch scratch;
  const NodeIndex x = nodes_.intern_common(
      directory_, "x", nullptr, {CommonKind::kShared, object(S_IFREG, 2), scratch.open_dir("one")});
  nodes_.names().remove(directory_, "x", {});
  EXPECT_TRUE(nodes_.info(x).was_unlinked);
  EXPECT_GE(nodes_.info(x).object_fd(), 0);
}

TEST_F(NodeTableTest, AFileThatIsMadeWhereTheBaseHadOneIsAnotherNode) {
  const NodeIndex before = file("x", 2);
  nodes_.names().detach_stale(directory_, "x", object(S_IFREG, 99));
  EXPECT_NE(file("x", 99, true), before);
  EXPECT_EQ(path(before), "<stale>");
}

TEST_F(NodeTableTest, ANewObjectKeepsTheNodeOfItsLookup) {
  const NodeIndex found = file("x", 99, true);
  nodes_.names().detach_stale(directory_, "x", object(S_IFREG, 99));
  EXPECT_EQ(file("x", 99, true), found);
}

TEST_F(NodeTableTest, ALostNameLeavesTheOpenersDescriptor) {
  const Scratch scratch;
  const NodeIndex x = file("x", 2, false, 2);
  EXPECT_EQ(file("y", 2, false, 2), x);
  nodes_.names().replace_name_by_descriptor(x, {scratch.open_dir("open"), Charge()});
  EXPECT_EQ(path(x), "d/y");
  nodes_.names().replace_name_by_descriptor(x, {scratch.open_dir("open"), Charge()});
  EXPECT_TRUE(nodes_.info(x).removed);
  EXPECT_GE(nodes_.info(x).object_fd(), 0);
}

TEST_F(NodeTableTest, RenamedDirectoriesKeepTheirChildren) {
  const NodeIndex x = file("x", 2);
  nodes_.names().rename(root_, "d", root_, "e");
  EXPECT_EQ(path(x), "e/x");
  EXPECT_EQ(nodes_.names().find_path(root_, "e/x"), x);
  EXPECT_EQ(nodes_.names().find_path(root_, "d/x"), 0U);
}

TEST_F(NodeTableTest, ExchangedNamesChangePlaces) {
  const NodeIndex x = file("x", 2);
  const NodeIndex y = file("y", 3);
  nodes_.names().exchange(directory_, "x", directory_, "y");
  EXPECT_EQ(path(x), "d/y");
  EXPECT_EQ(path(y), "d/x");
}

// The two Job pointers are invalid: the table only compares them.
TEST(NodeCharges, EachNodeOfAJobCountsUntilItIsForgotten) {
  UserLimits limits({});
  UserAccount& user = limits.account(1000);
  UserAccount& next = limits.account(1001);
  NodeTable nodes;
  Job* const job = reinterpret_cast<Job*>(0x1000);
  Job* const other = reinterpret_cast<Job*>(0x2000);
  const NodeIndex jobs = nodes.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir);
  const NodeIndex root =
      nodes.intern_own(jobs, "job", NodeKind::kObject, job);  // before the job's user is known
  nodes.charge_to(*job, user);
  const auto add = [&](Job* owner, const char* name, ino_t inode) {
    return nodes.intern(root, name, owner, {object(S_IFREG, inode), false});
  };
  const NodeIndex x = add(job, "x", 2);
  (void)add(job, "y", 3);
  (void)add(job, "x", 2);
  (void)add(other, "z", 4);
  EXPECT_EQ(user.used(Limit::kNodes), 3U);
  nodes.charge_to(*job, next);
  EXPECT_EQ(user.used(Limit::kNodes), 0U);
  EXPECT_EQ(next.used(Limit::kNodes), 3U);
  nodes.forget(x, 2);
  EXPECT_EQ(next.used(Limit::kNodes), 2U);
}

TEST(NodesOfAJob, ComeNewestFirstAndOnceForEachName) {
  NodeTable nodes;
  Job* const job = reinterpret_cast<Job*>(0x1000);
  Job* const other = reinterpret_cast<Job*>(0x2000);
  const NodeIndex jobs = nodes.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir);
  const NodeIndex root = nodes.intern_own(jobs, "job", NodeKind::kObject, job);
  const NodeIndex first = nodes.intern(root, "first", job, {object(S_IFREG, 2), false});
  const NodeIndex second = nodes.intern(root, "second", job, {object(S_IFREG, 3), false});
  (void)nodes.intern(root, "others", other, {object(S_IFREG, 4), false});
  const NodeIndex third = nodes.intern(root, "third", job, {object(S_IFREG, 5), false});
  nodes.names().add_link(third, root, "link", object(S_IFREG, 5, 2));
  const auto listed = [&](std::size_t most = 100) {
    std::vector<NodeIndex> found;
    for (const auto& named : nodes.names().some_of(job, most)) found.push_back(named.node);
    return found;
  };
  EXPECT_EQ(listed(), (std::vector{third, third, second, first}));
  EXPECT_EQ(listed(3), (std::vector{third, third, second}));
  nodes.forget(second, 1);
  EXPECT_EQ(listed(), (std::vector{third, third, first}));
  nodes.forget(third, 1);
  nodes.forget(first, 1);
  EXPECT_EQ(listed(), std::vector<NodeIndex>());
}

TEST(NodesOfAJob, MustBeForgottenBeforeTheViewsRootIsFreed) {
  UserLimits limits({});
  UserAccount& user = limits.account(1000);
  NodeTable nodes;
  Job* const job = reinterpret_cast<Job*>(0x1000);
  const NodeIndex jobs = nodes.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir);
  const NodeIndex root = nodes.intern_own(jobs, "job", NodeKind::kObject, job);
  nodes.charge_to(*job, user);
  const std::uint32_t before = nodes.size();
  const NodeIndex file = nodes.intern(root, "file", job, {object(S_IFREG, 2), false});
  EXPECT_FALSE(nodes.forget_job(*job, root));
  nodes.forget(file, 1);
  nodes.count_lookup(root);  // simulates a lookup by the kernel
  EXPECT_FALSE(nodes.forget_job(*job, root));
  nodes.forget(root, 1);
  const NodeIndex nameless = nodes.intern_nameless(job, {}, {});
  EXPECT_FALSE(nodes.forget_job(*job, root));
  nodes.forget(nameless, 1);
  EXPECT_TRUE(nodes.forget_job(*job, root));
  EXPECT_EQ(nodes.size(), before - 1);
  EXPECT_EQ(nodes.names().find(jobs, "job"), 0U);
  EXPECT_EQ(user.used(Limit::kNodes), 0U);
}

TEST_F(NodeTableTest, FilesToForgetAreNeitherDirectoriesNorUnwanted) {
  const NodeIndex x = file("x", 2);
  const NodeIndex y = file("y", 3);
  const NodeIndex linked = file("z", 4, true, 2);
  nodes_.names().add_link(linked, directory_, "also", object(S_IFREG, 4, 2));
  const auto some =
      nodes_.names().some_files_of(nullptr, 10, [&](NodeIndex node) { return node != y; });
  ASSERT_EQ(some.size(), 1U);
  EXPECT_EQ(some[0].node, x);
  EXPECT_EQ(some[0].name, "x");
  EXPECT_TRUE(nodes_.names().some_files_of(nullptr, 0, [](NodeIndex) { return true; }).empty());
}

}  // namespace
}  // namespace cacheshim
