// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <climits>

#include "store/overlay/changes.h"
#include "store/overlay/copy_up.h"
#include "store/overlay/layer_upkeep.h"
#include "store/sys/rename_flags.h"
#include "store/sys/whiteout.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

using Overlay_ = OverlayTest;

// Meson also runs this program without the flags of renameat2(2).
bool has_exchange(const std::string& directory) {
  const auto opened = sys::open_path(directory, O_RDONLY | O_DIRECTORY);
  const auto support = opened ? sys::probe_renames(opened->get()) : opened.error();
  return support && *support == sys::RenameSupport::kFlags;
}

TEST_F(Overlay_, ShowsBaseFilesThatAppearLater) {
  EXPECT_EQ(get("fam/K/x"), "<none>");
  scratch_.write("base/fam/K/x", "new");
  EXPECT_EQ(get("fam/K/x"), "new");
}

TEST_F(Overlay_, WritingCopiesUpAndLeavesTheBaseAlone) {
  scratch_.write("base/a/x", "old");
  {
    auto fd = open_writable(overlay_, "a/x", O_WRONLY);
    ASSERT_TRUE(fd);
    ASSERT_TRUE(sys::write_all(fd->get(), "NEW"));
  }
  EXPECT_EQ(get("a/x"), "NEW");
  EXPECT_EQ(scratch_.read("base/a/x"), "old");
  EXPECT_EQ(counters_.copy_ups, 1U);
}

TEST_F(Overlay_, TruncatingOpenCopiesNoData) {
  scratch_.write("base/a/x", "old");
  ASSERT_TRUE(open_writable(overlay_, "a/x", O_WRONLY | O_TRUNC));
  EXPECT_EQ(get("a/x"), "");
}

TEST_F(Overlay_, RemovedBaseFileIsAbsentOnlyInThisLayer) {
  scratch_.write("base/a/x", "old");
  ASSERT_TRUE(changes::remove_file(overlay_, "a/x"));
  EXPECT_EQ(get("a/x"), "<none>");
  EXPECT_EQ(names("a"), Names{});
  EXPECT_EQ(scratch_.read("base/a/x"), "old");
}

TEST_F(Overlay_, NamesTooLongForAWhiteoutCanBeRemoved) {
  const std::string longest(255, 'n');
  scratch_.write("base/a/" + longest, "old");
  ASSERT_TRUE(changes::remove_file(overlay_, "a/" + longest));
  EXPECT_EQ(names("a"), Names{});
  ASSERT_TRUE(load_layer(overlay_));
  EXPECT_EQ(get("a/" + longest), "<none>");
}

TEST_F(Overlay_, DirectoryMadeAgainDoesNotMergeWithTheOldOne) {
  scratch_.write("base/a/d/x", "old");
  ASSERT_TRUE(changes::remove_file(overlay_, "a/d/x"));
  ASSERT_TRUE(changes::remove_dir(overlay_, "a/d"));
  ASSERT_TRUE(changes::make_dir(overlay_, "a/d", 0755));
  scratch_.write("base/a/d/y", "later");
  EXPECT_EQ(names("a/d"), Names{});
}

TEST_F(Overlay_, DirectoryThatTheBaseFillsIsNotEmpty) {
  scratch_.write("base/fam/K/x", "published");
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/K/tmp.1", 0755));
  ASSERT_TRUE(changes::remove_dir(overlay_, "fam/K/tmp.1"));
  EXPECT_TRUE(changes::remove_dir(overlay_, "fam/K").failed_with(ENOTEMPTY));
}

TEST_F(Overlay_, EntryBegunWhileTheBaseHadNoneIsServedFromTheLayerAlone) {
  ASSERT_TRUE(changes::make_dir(overlay_, "fam", 0755));
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/K", 0755));
  put("fam/K/mine", "1");
  scratch_.write("base/fam/K/theirs", "2");
  EXPECT_EQ(names("fam/K"), Names{"mine"});
  EXPECT_EQ(get("fam/K/theirs"), "<none>");
}

TEST_F(Overlay_, ScratchNamesDoNotBeginAnEntry) {
  ASSERT_TRUE(changes::make_dir(overlay_, "fam", 0755));
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/K", 0755));
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/K/tmp.1", 0755));
  put("fam/K/tmp.1/x", "1");
  scratch_.write("base/fam/K/theirs", "2");
  EXPECT_EQ(names("fam/K"), (Names{"theirs", "tmp.1"}));
}

TEST_F(Overlay_, EntryThatTheBaseHadIsMerged) {
  scratch_.write("base/fam/K/theirs", "2");
  put("fam/K/mine", "1");
  EXPECT_EQ(names("fam/K"), (Names{"mine", "theirs"}));
}

TEST_F(Overlay_, RenamingABaseDirectoryMovesAllOfIt) {
  scratch_.write("base/a/d/sub/x", "deep");
  ASSERT_TRUE(changes::rename(overlay_, "a/d", "a/e", 0));
  EXPECT_EQ(get("a/e/sub/x"), "deep");
  EXPECT_EQ(names("a"), Names{"e"});
  EXPECT_EQ(scratch_.read("base/a/d/sub/x"), "deep");
}

TEST_F(Overlay_, RenameOntoADirectoryThatOnlyTheBaseFillsIsRefused) {
  scratch_.write("base/a/full/x", "x");
  ASSERT_TRUE(changes::make_dir(overlay_, "a/d", 0755));
  EXPECT_TRUE(changes::rename(overlay_, "a/d", "a/full", 0).failed_with(ENOTEMPTY));
}

TEST_F(Overlay_, RenameFlagsAreKeptAcrossTheLayers) {
  scratch_.write("base/a/x", "base");
  put("a/y", "layer");
  EXPECT_TRUE(changes::rename(overlay_, "a/y", "a/x", RENAME_NOREPLACE).failed_with(EEXIST));
  const Status exchanged = changes::rename(overlay_, "a/y", "a/x", RENAME_EXCHANGE);
  EXPECT_EQ(static_cast<bool>(exchanged), has_exchange(scratch_.path()));
  EXPECT_EQ(get("a/x"), exchanged ? "layer" : "base");
  EXPECT_EQ(get("a/y"), exchanged ? "base" : "layer");
}

TEST_F(Overlay_, SymlinksOfAJobAreNotFollowed) {
  scratch_.write("outside/secret", "secret");
  ASSERT_TRUE(changes::make_symlink(overlay_, "out", scratch_ / "outside"));
  EXPECT_FALSE(overlay_.find("out/secret"));
  EXPECT_TRUE(changes::create_file(overlay_, "out/planted", O_WRONLY, 0644).failed_with(ELOOP));
  EXPECT_FALSE(scratch_.exists("outside/planted"));
}

TEST_F(Overlay_, RemovedNamesCanBeMadeAgainAndPresentOnesCannot) {
  scratch_.write("base/a/x", "old");
  EXPECT_TRUE(changes::make_dir(overlay_, "a/x", 0755).failed_with(EEXIST));
  ASSERT_TRUE(changes::remove_file(overlay_, "a/x"));
  put("a/x", "new");
  EXPECT_TRUE(changes::make_symlink(overlay_, "a/x", "y").failed_with(EEXIST));
  EXPECT_TRUE(changes::create_file(overlay_, "a/x", O_WRONLY, 0644).failed_with(EEXIST));
  EXPECT_EQ(get("a/x"), "new");
}

// The base gets a file after the layer has created a directory of the same name.
TEST_F(Overlay_, ABaseFileWithADirectorysNameHidesNoNameOfTheLayer) {
  ASSERT_TRUE(changes::make_dir(overlay_, "a", 0755));
  put("a/x", "layer");
  scratch_.write("base/a", "base");
  EXPECT_TRUE(changes::make_dir(overlay_, "a/x", 0755).failed_with(EEXIST));
  EXPECT_EQ(names("a"), Names{"x"});
}

TEST_F(Overlay_, DirectoryWithMarkersAloneIsRemoved) {
  scratch_.write("base/a/x", "x");
  ASSERT_TRUE(changes::rename(overlay_, "a", "b", 0));
  ASSERT_TRUE(changes::remove_file(overlay_, "b/x"));
  ASSERT_TRUE(changes::remove_dir(overlay_, "b"));
  EXPECT_EQ(names(""), Names{});
  ASSERT_TRUE(changes::make_dir(overlay_, "c", 0755));
  put("c/y", "y");
  EXPECT_TRUE(changes::remove_dir(overlay_, "c").failed_with(ENOTEMPTY));
  ASSERT_TRUE(changes::remove_file(overlay_, "c/y"));
  ASSERT_TRUE(changes::remove_dir(overlay_, "c"));
  ASSERT_TRUE(changes::make_dir(overlay_, "c", 0755));
}

TEST_F(Overlay_, BeginningAnEntryLeavesItsDirectoriesTimes) {
  ASSERT_TRUE(changes::make_dir(overlay_, "fam", 0755));
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/K", 0755));
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/K/deep", 0755));
  const auto before = overlay_.find("fam/K");
  ASSERT_TRUE(before);
  put("fam/K/deep/x", "1");
  EXPECT_TRUE(scratch_.exists("upper/fam/K/" + std::string(kOpaqueMarker)));
  const auto after = overlay_.find("fam/K");
  EXPECT_EQ(after->st.st_mtim.tv_sec, before->st.st_mtim.tv_sec);
  EXPECT_EQ(after->st.st_mtim.tv_nsec, before->st.st_mtim.tv_nsec);
}

TEST_F(Overlay_, TheStoresRecordsAndOurMarkersAreInvisible) {
  scratch_.write("base/.cacheshim/format", "1");
  EXPECT_EQ(names(""), Names{});
  EXPECT_TRUE(overlay_.find(".cacheshim/format").failed_with(ENOENT));
  EXPECT_TRUE(changes::make_dir(overlay_, ".cacheshim", 0755).failed_with(EPERM));
  EXPECT_TRUE(changes::create_file(overlay_, ".wh.x", O_WRONLY, 0644).failed_with(EPERM));
}

TEST_F(Overlay_, HiddenNamesAreReadBackFromDisk) {
  scratch_.write("base/a/x", "x");
  scratch_.write("base/b/y", "y");
  ASSERT_TRUE(changes::remove_file(overlay_, "a/x"));
  ASSERT_TRUE(changes::rename(overlay_, "b", "c", 0));
  take_up_layer(overlay_);
  EXPECT_EQ(names(""), (Names{"a", "c"}));
  EXPECT_EQ(names("a"), Names{});
  scratch_.write("base/c/later", "l");
  EXPECT_EQ(names("c"), Names{"y"});
}

TEST_F(Overlay_, WithoutALayerTheBaseIsReadAndNothingIsMade) {
  Overlay bare({base_.get()}, entries_, counters_);
  scratch_.write("base/a/x", "x");
  EXPECT_TRUE(bare.find("a/x"));
  EXPECT_FALSE(changes::make_dir(bare, "a/d", 0755));
}

// Makes one change of each kind to `directory`/`name`, and verifies the results. A long `name`
// tests long paths.
void expect_changes_in(Overlay& overlay, const std::string& directory, const std::string& name) {
  const std::string path = join_path(directory, name);
  const std::string other = join_path(directory, "other");
  EXPECT_TRUE(changes::create_file(overlay, path, O_WRONLY, 0600));
  EXPECT_TRUE(changes::create_file(overlay, path, O_WRONLY, 0600).failed_with(EEXIST));
  EXPECT_TRUE(changes::link(overlay, path, other));
  EXPECT_EQ(overlay.find(path)->st.st_nlink, 2U);
  EXPECT_TRUE(changes::remove_file(overlay, path));
  EXPECT_TRUE(changes::rename(overlay, other, path, 0));
  EXPECT_TRUE(S_ISREG(overlay.find(path)->st.st_mode));
  EXPECT_TRUE(changes::make_dir(overlay, path, 0700).failed_with(EEXIST));
  EXPECT_TRUE(changes::make_symlink(overlay, other, "nowhere"));
  if (has_exchange(Scratch().path())) {
    EXPECT_TRUE(changes::rename(overlay, path, other, RENAME_EXCHANGE));
    EXPECT_TRUE(changes::remove_file(overlay, other));
  } else {
    EXPECT_TRUE(changes::rename(overlay, other, path, 0));
  }
  EXPECT_TRUE(S_ISLNK(overlay.find(path)->st.st_mode));
  EXPECT_TRUE(changes::make_node(overlay, other, S_IFIFO | 0600));
  EXPECT_TRUE(changes::rename(overlay, other, path, 0));
  EXPECT_TRUE(S_ISFIFO(overlay.find(path)->st.st_mode));
  EXPECT_TRUE(changes::remove_file(overlay, path));
  EXPECT_TRUE(overlay.find(path).failed_with(ENOENT));
}

void expect_changes_at_any_depth(const Scratch& scratch) {
  const UniqueFd base = scratch.open_dir("base");
  const std::vector<Profile> profiles = test_profiles();
  const EntryMap entries(profiles);
  Counters counters;
  Overlay overlay({base.get()}, entries, counters);
  overlay.set_layer(scratch.open_dir("upper"), scratch.open_dir("work"));
  const std::string longest(255, 'n');
  std::string directory;
  std::vector<std::string> made;
  for (; directory.size() + 1 + longest.size() < PATH_MAX - 1; made.push_back(directory)) {
    expect_changes_in(overlay, directory, "x");
    directory = join_path(directory, longest);
    EXPECT_TRUE(changes::make_dir(overlay, directory, 0700));
  }
  EXPECT_EQ(join_path(directory, longest).size(), std::size_t{PATH_MAX - 1});
  expect_changes_in(overlay, directory, longest);
  made.push_back(join_path(directory, longest));
  EXPECT_TRUE(changes::make_dir(overlay, made.back(), 0700));
  expect_changes_in(overlay, made.back(), longest);
  for (auto at = made.rbegin(); at != made.rend(); ++at)
    EXPECT_TRUE(changes::remove_dir(overlay, *at));
  EXPECT_TRUE(changes::remove_file(overlay, "file"));
  EXPECT_TRUE(changes::create_file(overlay, "file", O_WRONLY, 0600));
  EXPECT_TRUE(overlay.find("file")->in_upper);
  EXPECT_TRUE(changes::remove_file(overlay, "directory/x"));
  EXPECT_TRUE(changes::remove_dir(overlay, "directory"));
  EXPECT_TRUE(changes::make_dir(overlay, "directory", 0700));
  EXPECT_TRUE(overlay.list("directory")->empty());
}

// The overlay makes calls by path only through a copy of the mount that has nosymfollow. An unprivileged daemon cannot
// create this copy. So the test runs both as this user and as an unprivileged user.
TEST(Overlay, ChangesNamesAtAnyDepthWithAndWithoutPrivilege) {
  for (const uid_t uid : {::geteuid(), uid_t{20001}}) {
    const Scratch scratch;
    scratch.write("base/file", "x");
    scratch.write("base/directory/x", "x");
    ASSERT_EQ(::chmod(scratch.path().c_str(), 0777), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      if (uid != ::geteuid() && ::setresuid(uid, uid, uid) != 0) ::_exit(2);
      expect_changes_at_any_depth(scratch);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "uid " << uid;
  }
}

TEST(Whiteout, NameFitsWhateverTheNameIs) {
  EXPECT_EQ(whiteout_name("x"), ".wh.x");
  const std::string longest(255, 'n');
  EXPECT_LE(whiteout_name(longest).size(), 255U);
  EXPECT_NE(whiteout_name(longest), whiteout_name(longest.substr(1) + "m"));
  EXPECT_TRUE(is_reserved_name(whiteout_name(longest)));
}

}  // namespace
}  // namespace cacheshim
