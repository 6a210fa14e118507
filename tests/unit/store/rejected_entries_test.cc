// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "store/base/entry_sample.h"
#include "store/overlay/changes.h"
#include "store/overlay/copy_up.h"
#include "store/overlay/layer_upkeep.h"
#include "store/publish/publisher.h"
#include "store/publish/rejected_entries.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

constexpr unsigned kOne = 20001;
constexpr unsigned kTwo = 20002;

// A job with its own layer over the fixture's base.
class RebuildingJob : public PublishHooks {
 public:
  RebuildingJob(std::string id, unsigned uid, Overlay& its_overlay)
      : overlay(its_overlay), id_(std::move(id)), uid_(uid) {}
  bool is_being_written(dev_t, ino_t) override { return false; }
  bool wait_until_closed(dev_t, ino_t) override { return true; }
  bool note_conflict(const std::string& unit) override { return conflicts.insert(unit).second; }
  bool note_why_unpublished(const std::string&, const std::string&) override { return true; }
  std::string why_refused() const override { return ""; }
  PublishingJob identity() const override { return {id_, "0", uid_}; }
  bool has_rejected(const std::string& unit) override { return rejected.contains(unit); }
  void settle_rejected(const std::string& unit) override { rejected.erase(unit); }
  bool may_replace() const override { return publishes; }
  void published(const std::string&, const struct stat&) override {}

  Overlay& overlay;
  bool publishes = true;
  std::set<std::string> rejected;
  std::set<std::string> conflicts;

 private:
  const std::string id_;
  const unsigned uid_;
};

class RejectedEntriesTest : public OverlayTest {
 protected:
  RejectedEntriesTest() {
    Profile files;
    files.name = "one";
    EntryRule rule{.path = PathPattern("*")};
    rule.files = {""};
    rule.renamed = true;
    files.entries.push_back(rule);
    files.evidence = Evidence::kRun;
    profiles_.push_back(files);
    auto opened = Store::open(scratch_ / "base", "");
    store_ = std::make_unique<Store>(std::get<Store>(std::move(opened)));
    publisher_ = std::make_unique<Publisher>(*store_, entries_, counters_);
    publisher_->rejected().set_clock([this] { return now_; });
    scratch_.write("base/fam/K/a", "bad");
    scratch_.write("base/fam/K/done-a", "bad too");
  }
  // Returns a new job, with an empty layer, even for an id that was used before.
  RebuildingJob& job(const std::string& id, unsigned uid) {
    const std::string number = std::to_string(overlays_.size());
    overlays_.push_back(
        std::make_unique<Overlay>(std::vector<int>{base_.get()}, entries_, counters_));
    overlays_.back()->set_layer(scratch_.open_dir("upper" + number),
                                scratch_.open_dir("work" + number));
    EXPECT_TRUE(load_layer(*overlays_.back()));
    jobs_.push_back(std::make_unique<RebuildingJob>(id, uid, *overlays_.back()));
    return *jobs_.back();
  }
  static void write(RebuildingJob& job, const std::string& path, const std::string& text) {
    auto fd = job.overlay.find(path) ? open_writable(job.overlay, path, O_WRONLY | O_TRUNC)
                                     : changes::create_file(job.overlay, path, O_WRONLY, 0644);
    ASSERT_TRUE(fd) << path << ": " << fd.error().code();
    ASSERT_TRUE(sys::write_all(fd->get(), text));
  }
  // Records that the job has rejected the entry, rebuilds all files of the entry, and publishes it.
  PublishReport rebuild(RebuildingJob& job, const std::string& text) {
    job.rejected.insert("fam/K");
    write(job, "fam/K/a", text);
    write(job, "fam/K/done-a", text + " too");
    return publisher_->publish(job.overlay, "fam/K", job);
  }
  std::string base() { return scratch_.read("base/fam/K/a"); }
  std::size_t in_trash() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& one :
         std::filesystem::directory_iterator(scratch_ / "base/.cacheshim/trash")) {
      ++count;
    }
    return count;
  }
  void publish_good(unsigned uid) {
    std::filesystem::remove_all(scratch_ / "base/fam/K");
    RebuildingJob& first = job("first", uid);
    ASSERT_TRUE(changes::make_dir(first.overlay, "fam/K", 0755));
    write(first, "fam/K/a", "good");
    write(first, "fam/K/done-a", "good too");
    ASSERT_EQ(publisher_->publish(first.overlay, "fam/K", first).entries, 1U);
  }

  std::time_t now_ = 1'000'000'000;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Publisher> publisher_;
  std::vector<std::unique_ptr<Overlay>> overlays_;
  std::vector<std::unique_ptr<RebuildingJob>> jobs_;
};

TEST_F(RejectedEntriesTest, TheSecondJobThatRejectsAnEntryReplacesIt) {
  const UniqueFd before(::open((scratch_ / "base/fam/K/a").c_str(), O_RDONLY));
  EXPECT_EQ(rebuild(job("j1", kOne), "1").conflicts, 1U);
  EXPECT_EQ(base(), "bad");
  RebuildingJob& second = job("j2", kTwo);
  EXPECT_EQ(rebuild(second, "2").entries, 1U);
  EXPECT_EQ(base(), "2");
  EXPECT_EQ(scratch_.read("base/fam/K/done-a"), "2 too");
  EXPECT_FALSE(second.overlay.find("fam/K/a")->in_upper);
  EXPECT_EQ(*sys::read_all(before.get()), "bad");
  EXPECT_EQ(in_trash(), 1U);
  EXPECT_EQ(counters_.entries_rejected, 2U);
  EXPECT_EQ(counters_.entries_replaced, 1U);
  const auto summary = publisher_->rejected().find("fam/K");
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->times, 2U);
  EXPECT_EQ(summary->jobs, 2U);
  EXPECT_EQ(summary->replaced, now_);
  EXPECT_TRUE(publisher_->rejected().worst(5).empty());
  std::vector<std::string> events;
  ASSERT_TRUE(store_->audit().read([&](const AuditRecord& record) {
    events.push_back(std::string(to_string(record.event)) + " " + record.reason);
  }));
  EXPECT_EQ(events, (std::vector<std::string>{"evict its readers have rejected it", "publish "}));
}

TEST_F(RejectedEntriesTest, OneJobAloneReplacesNothing) {
  publisher_->rejected().trust_publishers();
  for (int times = 0; times < 5; ++times) {
    EXPECT_EQ(rebuild(job("j1", kOne), std::to_string(times)).entries, 0U);
  }
  EXPECT_EQ(base(), "bad");
  EXPECT_EQ(counters_.entries_rejected, 5U);
  EXPECT_EQ(publisher_->rejected().worst(5).front().jobs, 1U);
}

TEST_F(RejectedEntriesTest, ManyJobsOfOneUserDoNotReplaceAnotherUsersEntry) {
  publish_good(kTwo);
  for (int number = 0; number < 20; ++number) {
    EXPECT_EQ(rebuild(job(fmt::format("j{}", number), kOne), "evil").entries, 0U);
  }
  EXPECT_EQ(base(), "good");
  EXPECT_EQ(counters_.entries_rejected, 20U);
  EXPECT_EQ(publisher_->rejected().find("fam/K")->jobs, RejectedEntries::kMostJobs);
  EXPECT_EQ(rebuild(job("other", kTwo), "better").entries, 1U);
  EXPECT_EQ(base(), "better");
}

// An entry without a recorded publisher may belong to any user.
TEST_F(RejectedEntriesTest, OneUserDoesNotReplaceAnUnrecordedEntry) {
  for (const char* id : {"j1", "j2", "j3"}) EXPECT_EQ(rebuild(job(id, kOne), "x").entries, 0U);
  EXPECT_EQ(base(), "bad");
}

TEST_F(RejectedEntriesTest, AUserReplacesAnEntryOfItsOwn) {
  publish_good(kOne);
  EXPECT_EQ(rebuild(job("j1", kOne), "1").entries, 0U);
  EXPECT_EQ(rebuild(job("j2", kOne), "2").entries, 1U);
  EXPECT_EQ(base(), "2");
}

TEST_F(RejectedEntriesTest, AUserWhoAddsAFileToAnEntryDoesNotOwnIt) {
  RebuildingJob& adding = job("j0", kOne);
  write(adding, "fam/K/done-b", "mine");
  ASSERT_EQ(publisher_->publish(adding.overlay, "fam/K", adding).files, 1U);
  for (const char* id : {"j1", "j2"}) {
    RebuildingJob& one = job(id, kOne);
    write(one, "fam/K/done-b", std::string("mine ") + id);
    EXPECT_EQ(rebuild(one, id).entries, 0U);
  }
  EXPECT_EQ(base(), "bad");
}

TEST_F(RejectedEntriesTest, JobsOfOneUserAreEnoughIfTheAdministratorNamesThePublishers) {
  publisher_->rejected().trust_publishers();
  EXPECT_EQ(rebuild(job("j1", kOne), "1").entries, 0U);
  EXPECT_EQ(rebuild(job("j2", kOne), "2").entries, 1U);
  EXPECT_EQ(base(), "2");
}

TEST_F(RejectedEntriesTest, EqualRebuildsAreCountedAndReplaceNothing) {
  for (const char* id : {"j1", "j2", "j3"}) EXPECT_EQ(rebuild(job(id, kTwo), "bad").conflicts, 0U);
  EXPECT_EQ(in_trash(), 0U);
  EXPECT_EQ(counters_.entries_rejected, 0U);
  EXPECT_EQ(counters_.rebuilds_equal, 3U);
  EXPECT_EQ(publisher_->rejected().worst(1).front().equal, 3U);
}

TEST_F(RejectedEntriesTest, JobsThatHaveNotOpenedTheEntryAreNotCounted) {
  for (const unsigned uid : {kOne, kTwo, 20003U}) {
    RebuildingJob& writer = job(fmt::format("j{}", uid), uid);
    write(writer, "fam/K/a", "other");
    write(writer, "fam/K/done-a", "other");
    const PublishReport report = publisher_->publish(writer.overlay, "fam/K", writer);
    EXPECT_EQ(report.conflicts, 1U);
    EXPECT_TRUE(report.is_unread_rebuild);
  }
  EXPECT_EQ(base(), "bad");
  EXPECT_EQ(counters_.entries_rejected, 0U);
  EXPECT_FALSE(publisher_->rejected().find("fam/K"));
}

TEST_F(RejectedEntriesTest, JobsThatDoNotPublishAreOnlyCounted) {
  for (const unsigned uid : {kOne, kTwo, 20003U}) {
    RebuildingJob& reader = job(fmt::format("j{}", uid), uid);
    reader.publishes = false;
    EXPECT_EQ(rebuild(reader, "x").entries, 0U);
  }
  EXPECT_EQ(counters_.entries_rejected, 3U);
  EXPECT_EQ(rebuild(job("first", kOne), "1").entries, 0U);
  EXPECT_EQ(base(), "bad");
  EXPECT_EQ(rebuild(job("second", kTwo), "2").entries, 1U);
}

TEST_F(RejectedEntriesTest, AnEntryIsReplacedOnceAPeriod) {
  int number = 0;
  const auto rebuild_by_both = [&] {
    (void)rebuild(job("j1", kOne), std::to_string(++number));
    (void)rebuild(job("j2", kTwo), std::to_string(++number));
  };
  rebuild_by_both();
  EXPECT_EQ(base(), "2");
  rebuild_by_both();
  now_ += RejectedEntries::kReplacePeriod - 1;
  rebuild_by_both();
  EXPECT_EQ(base(), "2");
  now_ += 1;
  rebuild_by_both();
  EXPECT_NE(base(), "2");
  EXPECT_EQ(counters_.entries_replaced, 2U);
}

TEST_F(RejectedEntriesTest, AnEntryStaysWhileTheJobsBuildNeedsAFileOfIt) {
  scratch_.write("base/fam/K/sub/b", "needed");
  (void)rebuild(job("j1", kOne), "1");
  EXPECT_EQ(rebuild(job("j2", kTwo), "2").entries, 0U);
  EXPECT_EQ(scratch_.read("base/fam/K/sub/b"), "needed");
  RebuildingJob& third = job("j3", 20003);
  write(third, "fam/K/sub/b", "anew");
  EXPECT_EQ(rebuild(third, "3").entries, 1U);
  EXPECT_EQ(scratch_.read("base/fam/K/sub/b"), "anew");
}

TEST_F(RejectedEntriesTest, AnEntryThatWasReplacedOtherwiseBeginsAnew) {
  (void)rebuild(job("j1", kOne), "1");
  // Renames the old directory instead of removing it, so that the new directory cannot get the same inode number.
  std::filesystem::rename(scratch_ / "base/fam/K", scratch_ / "old");
  scratch_.write("base/fam/K/a", "newer");
  scratch_.write("base/fam/K/done-a", "newer");
  EXPECT_EQ(rebuild(job("j2", kTwo), "2").entries, 0U);
  EXPECT_EQ(publisher_->rejected().find("fam/K")->jobs, 1U);
}

TEST_F(RejectedEntriesTest, AnEntryThatIsAFileIsReplaced) {
  scratch_.write("base/one/f", "torn");
  const auto rebuild_file = [&](const char* id, unsigned uid) {
    RebuildingJob& one = job(id, uid);
    one.rejected.insert("one/f");
    write(one, "one/f", id);
    return publisher_->publish(one.overlay, "one/f", one).entries;
  };
  EXPECT_EQ(rebuild_file("j1", kOne), 0U);
  EXPECT_EQ(rebuild_file("j2", kTwo), 1U);
  EXPECT_EQ(scratch_.read("base/one/f"), "j2");
}

TEST_F(RejectedEntriesTest, FilesThatProgramsRenewAreNotCounted) {
  profiles_.back().entries.front().renewed = true;
  scratch_.write("base/one/f", "old page");
  for (const unsigned uid : {kOne, kTwo, 20003U}) {
    RebuildingJob& one = job(fmt::format("j{}", uid), uid);
    one.rejected.insert("one/f");
    write(one, "one/f", "new page");
    EXPECT_FALSE(publisher_->publish(one.overlay, "one/f", one).is_unread_rebuild);
  }
  EXPECT_EQ(counters_.entries_rejected, 0U);
  EXPECT_EQ(scratch_.read("base/one/f"), "old page");
}

// Programs do not open an incomplete entry. So rebuilding an incomplete entry counts as a rejection even if the job has
// not opened the entry.
TEST_F(RejectedEntriesTest, AnIncompleteEntryThatNobodyCompletesIsReplaced) {
  std::filesystem::remove(scratch_ / "base/fam/K/done-a");
  const auto build = [&](const char* id, unsigned uid) {
    RebuildingJob& one = job(id, uid);
    write(one, "fam/K/a", id);
    write(one, "fam/K/done-a", id);
    const auto entries = publisher_->publish(one.overlay, "fam/K", one).entries;
    return entries +
           // When the job ends, the daemon tries again to publish the entry.
           publisher_->publish(one.overlay, "fam/K", one).entries;
  };
  EXPECT_EQ(build("young", kOne), 0U);
  EXPECT_EQ(counters_.entries_rejected, 0U) << "another process may be building it";
  const timespec old[2] = {{.tv_sec = 1'000'000'000, .tv_nsec = 0},
                           {.tv_sec = 1'000'000'000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (scratch_ / "base/fam/K/a").c_str(), old, 0), 0);
  EXPECT_EQ(build("j1", kOne), 0U);
  EXPECT_EQ(counters_.entries_rejected, 1U) << "the second try is the same build";
  EXPECT_EQ(build("j2", kTwo), 1U);
  EXPECT_EQ(base(), "j2");
}

TEST_F(RejectedEntriesTest, RecordsAreBoundedAndTheOldestAreDropped) {
  RejectedEntries& rejected = publisher_->rejected();
  const auto note = [&](std::size_t number) {
    rejected.note({.unit = fmt::format("fam/{}", number), .version = {1, number + 1}, .job = "j"});
    ++now_;
  };
  for (std::size_t number = 0; number < RejectedEntries::kMostEntries; ++number) note(number);
  rejected.note_replaced("fam/0");
  note(RejectedEntries::kMostEntries);
  EXPECT_TRUE(rejected.find("fam/0")) << "it was replaced within the period";
  EXPECT_FALSE(rejected.find("fam/1"));
  EXPECT_TRUE(rejected.find("fam/2"));
  EXPECT_EQ(counters_.entries_rejected, RejectedEntries::kMostEntries + 1);
}

TEST_F(RejectedEntriesTest, NothingIsRecordedWhileAllRecordsAreOfReplacedEntries) {
  RejectedEntries& rejected = publisher_->rejected();
  for (std::size_t number = 0; number < RejectedEntries::kMostEntries; ++number) {
    rejected.note_replaced(fmt::format("fam/{}", number));
  }
  rejected.note({.unit = "fam/K", .version = {1, 1}, .job = "j"});
  EXPECT_FALSE(rejected.find("fam/K"));
  now_ += RejectedEntries::kReplacePeriod;
  rejected.note({.unit = "fam/K", .version = {1, 1}, .job = "j"});
  EXPECT_TRUE(rejected.find("fam/K"));
}

using EntrySampleTest = RejectedEntriesTest;

TEST_F(EntrySampleTest, FindsEntriesThatNameFilesElsewhere) {
  scratch_.write("base/fam/L/done-a", R"({"child": {"a.cubin": "cache/fam/L/a.cubin"}})");
  scratch_.write("base/fam/M/done-a", R"({"child": {"a.cubin": "/ci-cache/fam/M/a.cubin"}})");
  const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
  const EntrySample sample = sample_entries(base_.get(), "/ci-cache", entries_, later);
  EXPECT_TRUE(sample.is_whole);
  EXPECT_EQ(sample.entries, 3U);
  ASSERT_EQ(sample.damaged.size(), 1U);
  EXPECT_EQ(sample.damaged.front().path, "fam/L/done-a");
}

TEST_F(EntrySampleTest, FindsEntriesThatNotEveryUserMayRead) {
  for (const char* key : {"open", "file", "directory"})
    scratch_.write(fmt::format("base/fam/{}/x", key), "text");
  ASSERT_EQ(::chmod((scratch_ / "base/fam/file/x").c_str(), 0640), 0);
  ASSERT_EQ(::chmod((scratch_ / "base/fam/directory").c_str(), 0711), 0);
  const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
  const auto closed = [&] {
    auto found = sample_entries(base_.get(), "/ci-cache", entries_, later).closed;
    std::sort(found.begin(), found.end());
    return found;
  };
  EXPECT_EQ(closed(), (std::vector<std::string>{"fam/directory", "fam/file"}));
  ASSERT_EQ(::chmod((scratch_ / "base/fam").c_str(), 0700), 0);
  EXPECT_EQ(closed(), (std::vector<std::string>{"fam", "fam/directory", "fam/file"}));
}

TEST_F(EntrySampleTest, IgnoresScratchNames) {
  scratch_.write("base/fam/open/tmp.left", "");
  ASSERT_EQ(::chmod((scratch_ / "base/fam/open/tmp.left").c_str(), 0600), 0);
  const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
  const auto sample = sample_entries(base_.get(), "/ci-cache", entries_, later);
  EXPECT_EQ(sample.closed, std::vector<std::string>());
  EXPECT_EQ(sample.entries, 2U);
}

TEST_F(EntrySampleTest, StopsWhenItsTimeIsOver) {
  const auto now = std::chrono::steady_clock::now();
  const EntrySample sample = sample_entries(base_.get(), "/ci-cache", entries_, now);
  EXPECT_FALSE(sample.is_whole);
  EXPECT_EQ(sample.entries, 0U);
}

}  // namespace
}  // namespace cacheshim
