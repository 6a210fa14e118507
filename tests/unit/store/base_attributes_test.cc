// SPDX-License-Identifier: Apache-2.0
// Tests that published files and lock files, when they enter the base, lose all attributes that a job can set.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "store/overlay/changes.h"
#include "store/publish/publisher.h"
#include "store/sys/copy_file.h"
#include "store/sys/job_xattrs.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

constexpr const char* kNote = "user.containers.override_stat";

class Hooks : public PublishHooks {
 public:
  bool is_being_written(dev_t, ino_t) override { return false; }
  bool wait_until_closed(dev_t, ino_t) override { return true; }
  bool note_conflict(const std::string&) override { return true; }
  bool note_why_unpublished(const std::string&, const std::string& reason) override {
    kept = reason;
    return true;
  }
  // The publisher calls this function several times. At the last call, it holds the overlay's mutex and is about to
  // change the base.
  std::string why_refused() const override {
    if (meanwhile) meanwhile();
    return "";
  }
  PublishingJob identity() const override { return {"j", "0", 20001}; }
  void published(const std::string&, const struct stat&) override {}

  std::function<void()> meanwhile;
  std::string kept;
};

class BaseAttributesTest : public OverlayTest {
 protected:
  BaseAttributesTest() {
    profiles_.front().classes.emplace_back(NameClass::kLock, PathPattern("*.lock"));
    store_ = std::make_unique<Store>(std::get<Store>(Store::open(scratch_ / "base", "")));
    publisher_ = std::make_unique<Publisher>(*store_, entries_, counters_);
    overlay_.locks().directory.share(base_.get(), nullptr, store_->staging());
    EXPECT_TRUE(changes::make_dir(overlay_, "fam", 0755));
    EXPECT_TRUE(changes::make_dir(overlay_, "fam/K", 0755));
  }

  void SetUp() override {
    scratch_.write("probe", "");
    if (::setxattr((scratch_ / "probe").c_str(), kNote, "x", 1, 0) != 0) {
      GTEST_SKIP() << "the file system has no user attributes";
    }
  }

  // Gives the layer's file all attributes that a job can set.
  void decorate(const std::string& path) const {
    const std::string file = scratch_ / ("upper/" + path);
    EXPECT_EQ(::chmod(file.c_str(), 06777), 0);
    EXPECT_EQ(::setxattr(file.c_str(), kNote, "0:0:04755", 9, 0), 0);
  }
  std::size_t count_xattrs(const std::string& path) const {
    return static_cast<std::size_t>(::listxattr((scratch_ / path).c_str(), nullptr, 0));
  }
  mode_t mode_of(const std::string& path) const {
    struct stat st {};
    EXPECT_EQ(::stat((scratch_ / path).c_str(), &st), 0) << path;
    return st.st_mode & 07777;
  }

  std::unique_ptr<Store> store_;
  std::unique_ptr<Publisher> publisher_;
  Hooks hooks_;
};

TEST_F(BaseAttributesTest, OnlyAttributesOfTheSecurityPolicyStay) {
  for (const char* name :
       {"user.x", "user.overlay.opaque", "trusted.overlay.opaque", "security.capability",
        "system.posix_acl_access", "system.posix_acl_default"}) {
    EXPECT_TRUE(is_lost_in_base(name)) << name;
  }
  for (const char* name : {"security.selinux", "security.ima", "system.nfs4_acl"}) {
    EXPECT_FALSE(is_lost_in_base(name)) << name;
  }
}

TEST_F(BaseAttributesTest, PublishedFilesHaveNone) {
  put("fam/K/linked", "1");
  put("fam/K/done-copied", "2");
  decorate("fam/K/linked");
  decorate("fam/K/done-copied");
  // A file that has a second name (hard link) is published as a copy.
  std::filesystem::create_hard_link(scratch_ / "upper/fam/K/done-copied", scratch_ / "elsewhere");
  EXPECT_EQ(publisher_->publish(overlay_, "fam/K", hooks_).files, 2U);
  for (const char* path : {"base/fam/K/linked", "base/fam/K/done-copied"}) {
    EXPECT_EQ(count_xattrs(path), 0U) << path;
    EXPECT_EQ(mode_of(path), 0755U) << path;
  }
}

// The staged file is a hard link to the layer's file, so the job can still change the staged file's attributes.
TEST_F(BaseAttributesTest, AnEntryWhoseAttributesChangeMeanwhileStaysInTheLayer) {
  const std::string file = scratch_ / "upper/fam/K/done-a";
  put("fam/K/done-a", "1");
  for (const auto& change : std::initializer_list<std::function<void()>>{
           [&] { (void)::chmod(file.c_str(), 04755); }, [&] { (void)::chmod(file.c_str(), 0666); },
           [&] { (void)::setxattr(file.c_str(), kNote, "x", 1, 0); }}) {
    hooks_.meanwhile = change;
    EXPECT_EQ(publisher_->publish(overlay_, "fam/K", hooks_).entries, 0U);
    EXPECT_FALSE(scratch_.exists("base/fam/K/done-a"));
  }
  hooks_.meanwhile = nullptr;
  EXPECT_EQ(publisher_->publish(overlay_, "fam/K", hooks_).entries, 1U);
  EXPECT_EQ(count_xattrs("base/fam/K/done-a"), 0U);
  EXPECT_EQ(mode_of("base/fam/K/done-a") & 07022, 0U);
}

TEST_F(BaseAttributesTest, FilesThatBecomeLockFilesHaveNone) {
  for (const char* name : {"fam/K/renamed", "fam/K/linked"}) {
    put(name, "1");
    decorate(name);
  }
  ASSERT_TRUE(changes::rename(overlay_, "fam/K/renamed", "fam/K/a.lock", 0));
  ASSERT_TRUE(changes::link(overlay_, "fam/K/linked", "fam/K/b.lock"));
  for (const char* path : {"base/fam/K/a.lock", "base/fam/K/b.lock"}) {
    EXPECT_EQ(count_xattrs(path), 0U) << path;
    EXPECT_EQ(mode_of(path), 0666U) << path;
  }
}

TEST_F(BaseAttributesTest, AFailedRenameToALockNameKeepsAttributes) {
  put("fam/K/a.lock", "");
  put("fam/K/file", "1");
  decorate("fam/K/file");
  EXPECT_TRUE(changes::rename(overlay_, "fam/K/file", "fam/K/a.lock", RENAME_NOREPLACE)
                  .failed_with(EEXIST));
  EXPECT_FALSE(changes::link(overlay_, "fam/K/file", "fam/K/a.lock"));
  EXPECT_GT(count_xattrs("upper/fam/K/file"), 0U);
}

// ---- paths that are too deep for the base

TEST_F(BaseAttributesTest, AnEntryWithADeepDirectoryStaysInTheLayer) {
  put("fam/K/done-a", "1");
  std::string directory = "fam/K";
  for (std::size_t depth = 0; depth < kMostBaseDepth - 1; ++depth) {
    directory += "/d";
    ASSERT_TRUE(changes::make_dir(overlay_, directory, 0755));
  }
  EXPECT_EQ(publisher_->publish(overlay_, "fam/K", hooks_).incomplete, 1U);
  EXPECT_NE(hooks_.kept.find("directories"), std::string::npos);
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
  ASSERT_TRUE(changes::remove_dir(overlay_, directory));
  EXPECT_EQ(publisher_->publish(overlay_, "fam/K", hooks_).entries, 1U);
}

TEST_F(BaseAttributesTest, ALockFileInADeepDirectoryIsNotCreated) {
  std::string directory = "fam/K";
  for (std::size_t depth = 0; depth < kMostBaseDepth - 1; ++depth) {
    directory += "/d";
    ASSERT_TRUE(changes::make_dir(overlay_, directory, 0755));
  }
  EXPECT_TRUE(changes::create_file(overlay_, directory + "/x.lock", O_WRONLY, 0644)
                  .failed_with(ENAMETOOLONG));
}

}  // namespace
}  // namespace cacheshim
