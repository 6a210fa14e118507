// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <future>
#include <memory>

#include "store/overlay/changes.h"
#include "store/overlay/copy_up.h"
#include "store/sys/digest.h"
#include "tests/unit/store/publisher_fixture.h"

namespace cacheshim {
namespace {

TEST_F(PublisherTest, AnEntryIsCompleteWithItsCompletingFileOnly) {
  begin("K");
  put("fam/K/a", "1");
  EXPECT_EQ(publisher_->completed_entry(overlay_, "fam/K/a", Arrival::kClosed), "");
  put("fam/K/done-a", "2");
  EXPECT_EQ(publisher_->completed_entry(overlay_, "fam/K/done-a", Arrival::kClosed), "fam/K");
}

// After a copy-up, the index of hard links has another name for the copied file, and the job may still write to the
// file through that name. So the file must be published as a copy.
TEST_F(PublisherTest, CopyOfAHardLinkIsPublishedAsAFileOfItsOwn) {
  scratch_.write("base/other/x", "1");
  std::filesystem::create_hard_link(scratch_ / "base/other/x", scratch_ / "base/other/y");
  begin("K");
  ASSERT_TRUE(changes::rename(overlay_, "other/x", "fam/K/done-a", 0));
  EXPECT_EQ(publish("fam/K").files, 1U);
  EXPECT_EQ(scratch_.read("base/fam/K/done-a"), "1");
  auto fd = open_writable(overlay_, "other/y", O_WRONLY);
  ASSERT_TRUE(fd && sys::write_all(fd->get(), "2"));
  EXPECT_EQ(scratch_.read("base/fam/K/done-a"), "1");
  EXPECT_EQ(get("other/y"), "2");
}

TEST_F(PublisherTest, ASingleFileCompletesOnlyAnEntryOfItsOwn) {
  begin("K");
  put("fam/K/l.so", "1");
  EXPECT_EQ(publisher_->completed_entry(overlay_, "fam/K/l.so", Arrival::kClosed), "fam/K");
  put("fam/K/other", "2");
  EXPECT_EQ(publisher_->completed_entry(overlay_, "fam/K/l.so", Arrival::kClosed), "");
}

TEST_F(PublisherTest, TakesNeitherDevicesNorFifosNorSockets) {
  begin("K");
  ASSERT_TRUE(changes::make_node(overlay_, "fam/K/fifo", S_IFIFO | 0644));
  ASSERT_TRUE(changes::make_node(overlay_, "fam/K/socket", S_IFSOCK | 0644));
  const bool is_root =
      ::geteuid() == 0;  // other users cannot create devices, so none can be published
  if (is_root) {
    const NewObject null(S_IFCHR | 0666, makedev(1, 3), std::nullopt);
    ASSERT_TRUE(changes::make_node(overlay_, "fam/K/done-device", null));
  }
  put("fam/K/done-a", "2");
  EXPECT_EQ(publish("fam/K").files, 1U);
  EXPECT_TRUE(scratch_.exists("base/fam/K/done-a"));
  for (const char* name : {"fifo", "socket", "done-device"}) {
    EXPECT_FALSE(scratch_.exists("base/fam/K/" + std::string(name))) << name;
  }
}

TEST_F(PublisherTest, PublishedFilesBelongToTheServiceAccount) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  begin("K");
  put("fam/K/done-a", "2");
  ASSERT_EQ(::chown((scratch_ / "upper/fam/K/done-a").c_str(), 20001, 20002), 0);
  EXPECT_EQ(publish("fam/K").files, 1U);
  struct stat st {};
  ASSERT_EQ(::stat((scratch_ / "base/fam/K/done-a").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, ::geteuid());
  EXPECT_EQ(st.st_gid, ::getegid());
}

TEST_F(PublisherTest, PublishesTheWholeEntryAndEmptiesTheLayer) {
  begin("K");
  put("fam/K/a", "1");
  ASSERT_TRUE(changes::make_dir(overlay_, "fam/K/tmp.9", 0755));
  put("fam/K/tmp.9/half", "?");
  put("fam/K/done-a", "2");
  const PublishReport report = publish("fam/K");
  EXPECT_EQ(report.entries, 1U);
  EXPECT_EQ(report.files, 2U);
  EXPECT_EQ(report.bytes, 2U);
  EXPECT_EQ(scratch_.read("base/fam/K/a"), "1");
  EXPECT_FALSE(scratch_.exists("base/fam/K/tmp.9"));
  EXPECT_FALSE(scratch_.exists("upper/fam/K/a"));
  EXPECT_EQ(names("fam/K"), (Names{"a", "done-a", "tmp.9"}));
  EXPECT_EQ(hooks_.paths, (std::set<std::string>{"fam/K/a", "fam/K/done-a"}));
  EXPECT_TRUE(changes::remove_file(overlay_, "fam/K/tmp.9/half"));
  EXPECT_TRUE(changes::remove_dir(overlay_, "fam/K/tmp.9"));
  EXPECT_TRUE(changes::remove_dir(overlay_, "fam/K").failed_with(ENOTEMPTY));
}

TEST_F(PublisherTest, FirstWriterWinsAndTheLoserKeepsItsOwn) {
  begin("K");
  put("fam/K/a", "mine");
  put("fam/K/done-a", "2");
  scratch_.write("base/fam/K/a", "theirs");
  const PublishReport report = publish("fam/K");
  EXPECT_EQ(report.conflicts, 1U);
  EXPECT_EQ(report.files, 0U);
  EXPECT_EQ(scratch_.read("base/fam/K/a"), "theirs");
  EXPECT_FALSE(scratch_.exists("base/fam/K/done-a"));
  EXPECT_EQ(get("fam/K/a"), "mine");
  EXPECT_EQ(publish("fam/K").conflicts, 1U);
  EXPECT_EQ(counters_.publish_conflicts, 1U);  // counts once, however often publishing is tried
}

TEST_F(PublisherTest, AddsAbsentFilesToAnEntryWithEqualCommonFiles) {
  begin("K");
  put("fam/K/a", "same");
  put("fam/K/done-b", "2");
  scratch_.write("base/fam/K/a", "same");
  const PublishReport report = publish("fam/K");
  EXPECT_EQ(report.files, 1U);
  EXPECT_EQ(scratch_.read("base/fam/K/done-b"), "2");
  EXPECT_EQ(names("fam/K"), (Names{"a", "done-b"}));
}

TEST_F(PublisherTest, AJobThatMayNotPublishPublishesNothing) {
  begin("K");
  put("fam/K/done-a", "2");
  hooks_.refused = "nobody knows it";
  const PublishReport report = publish("fam/K");
  EXPECT_EQ(report.refused, 1U);
  EXPECT_EQ(report.entries, 0U);
  (void)publish("fam/K");
  EXPECT_EQ(counters_.publish_refused, 1U);  // counts once, however often publishing is tried
  EXPECT_EQ(hooks_.kept["fam/K"], "the job may not publish: nobody knows it");
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
}

// A user who may not publish can write to the layer even after the entry has been staged.
TEST_F(PublisherTest, ThePolicyIsCheckedAgainBeforeTheBaseIsChanged) {
  begin("K");
  put("fam/K/done-a", "2");
  hooks_.refuse_at_check = 2;  // the first check passes; the second one follows the staging
  EXPECT_EQ(publish("fam/K").refused, 1U);
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
  EXPECT_EQ(get("fam/K/done-a"), "2");
}

TEST_F(PublisherTest, ManyNewEntriesAreRenamedAtOnceAndTheOthersOneByOne) {
  constexpr unsigned kEntries = 40;
  const auto key = [](unsigned number) { return "K" + std::to_string(number); };
  for (unsigned number = 0; number < kEntries; ++number) {
    begin(key(number));
    for (int file = 0; file < 7; ++file)
      put("fam/" + key(number) + "/" + std::to_string(file), "x");
    put("fam/" + key(number) + "/done-x", key(number));
  }
  scratch_.write("base/fam/K7/done-x", "K7");
  scratch_.write("base/fam/K8/done-x", "other");
  begin("begun");
  put("fam/begun/a", "1");
  std::uint64_t most_done = 0;
  const PublishReport report = publisher_->publish_all(
      overlay_, hooks_, false, [&](std::uint64_t done, std::uint64_t) { most_done = done; });
  EXPECT_EQ(report.entries, kEntries - 1);
  EXPECT_EQ(report.files, (kEntries - 2) * 8 + 7);
  EXPECT_EQ(report.conflicts, 1U);
  EXPECT_EQ(report.incomplete, 1U);
  EXPECT_EQ(most_done, kEntries + 1);
  EXPECT_EQ(scratch_.read("base/fam/K39/6") + scratch_.read("base/fam/K7/3"), "xx");
  EXPECT_EQ(scratch_.read("base/fam/K8/done-x"), "other");
  EXPECT_FALSE(scratch_.exists("upper/fam/K39") || scratch_.exists("upper/fam/K7"));
  EXPECT_TRUE(scratch_.exists("upper/fam/K8/3") && scratch_.exists("upper/fam/begun/a"));
  std::size_t records = 0;
  EXPECT_TRUE(store_->audit().read([&](const AuditRecord&) { ++records; }));
  EXPECT_EQ(records, kEntries - 1);
  EXPECT_EQ(counters_.entries_published, kEntries - 1);
}

// The job loses the right to publish after a batch has been staged and before it is renamed into the base.
TEST_F(PublisherTest, ABatchIsNotPublishedIfItsJobLosesTheRight) {
  for (const char* name : {"A", "B"}) {
    begin(name);
    put("fam/" + std::string(name) + "/done-x", "1");
  }
  hooks_.refuse_at_check = 3;
  const auto report = publisher_->publish_all(overlay_, hooks_, false, [](auto, auto) {});
  EXPECT_EQ(report.refused, 2U);
  EXPECT_EQ(report.entries, 0U);
  EXPECT_FALSE(scratch_.exists("base/fam/A") || scratch_.exists("base/fam/B"));
  EXPECT_EQ(get("fam/A/done-x") + get("fam/B/done-x"), "11");
}

TEST_F(PublisherTest, APlanReportsWhatWouldBeDoneAndDoesNothing) {
  for (const char* key : {"new", "there", "other", "begun", "busy"}) begin(key);
  put("fam/new/done-a", "12345");
  put("fam/new/b", "1");
  put("fam/there/done-a", "same");
  scratch_.write("base/fam/there/done-a", "same");
  put("fam/other/done-a", "mine");
  scratch_.write("base/fam/other/done-a", "theirs");
  put("fam/begun/a", "1");
  put("fam/busy/done-a", "1");
  struct stat st {};
  ASSERT_EQ(::stat((scratch_ / "upper/fam/busy/done-a").c_str(), &st), 0);
  hooks_.writing.insert(st.st_ino);
  std::map<std::string, UnitPlan> plans;
  for (UnitPlan& plan : publisher_->plan_all(overlay_, hooks_, false, [](auto, auto) {})) {
    plans[plan.unit] = plan;
  }
  EXPECT_EQ(plans.size(), 5U);
  EXPECT_EQ(plans["fam/new"].files, 2U);
  EXPECT_EQ(plans["fam/new"].bytes, 6U);
  EXPECT_EQ(plans["fam/new"].why_kept + plans["fam/there"].why_kept, "");
  EXPECT_EQ(plans["fam/there"].files, 0U);
  EXPECT_EQ(plans["fam/other"].why_kept, "the base has another version of it: first writer wins");
  EXPECT_EQ(plans["fam/busy"].why_kept, "a file of it is open for writing");
  EXPECT_EQ(plans["fam/begun"].why_kept,
            "its entry is not complete: it is completed by a file named done-* or *.so");
  EXPECT_FALSE(scratch_.exists("base/fam/new"));
  EXPECT_EQ(get("fam/there/done-a"), "same");
  EXPECT_TRUE(scratch_.exists("upper/fam/there/done-a"));
  EXPECT_EQ(counters_.publish_conflicts + counters_.entries_published, 0U);
  EXPECT_TRUE(hooks_.kept.empty());
  hooks_.refused = "why not";
  for (const UnitPlan& plan : publisher_->plan_all(overlay_, hooks_, true, [](auto, auto) {})) {
    EXPECT_EQ(plan.why_kept, "the job may not publish: why not");
  }
}

TEST_F(PublisherTest, AFileOfMoreThanTheMaximumStaysInTheLayer) {
  begin("K");
  put("fam/K/done-a", "1");
  if (::truncate((scratch_ / "upper/fam/K/done-a").c_str(), kMostDigestBytes + 1) != 0) {
    GTEST_SKIP() << "no files of this size here";
  }
  EXPECT_EQ(publish("fam/K").incomplete, 1U);
  EXPECT_EQ(hooks_.kept["fam/K"], "a file of it is larger than 1 TiB");
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
}

TEST_F(PublisherTest, PublishingStopsWhenItIsNoLongerWanted) {
  for (const char* key : {"A", "B"}) {
    begin(key);
    put("fam/" + std::string(key) + "/done-a", "1");
  }
  const auto ignore = [](auto, auto) {};
  // Each publish_all() gets further than the one before it, until both entries are published.
  int published = 0;
  bool is_one_published = false;
  for (int most = 0; published < 2; ++most) {
    ASSERT_LT(most, 100);
    int checks = 0;
    (void)publisher_->publish_all(overlay_, hooks_, true, ignore, [&] { return ++checks <= most; });
    published = static_cast<int>(scratch_.exists("base/fam/A")) +
                static_cast<int>(scratch_.exists("base/fam/B"));
    is_one_published = is_one_published || published == 1;
    EXPECT_EQ(get("fam/A/done-a") + get("fam/B/done-a"), "11");
  }
  EXPECT_TRUE(is_one_published);
  EXPECT_TRUE(publisher_->plan_all(overlay_, hooks_, true, ignore, [] { return false; }).empty());
}

// Another job may publish the same entry while the publisher compares or reads this job's files.
TEST_F(PublisherTest, ABaseThatChangesAfterTheComparisonIsComparedAgain) {
  for (const char* key : {"K", "L"}) {
    begin(key);
    put("fam/" + std::string(key) + "/a", "same");
    put("fam/" + std::string(key) + "/done-a", "mine");
    scratch_.write("base/fam/" + std::string(key) + "/a", "same");
  }
  hooks_.once_compared = [&] {
    scratch_.write("base/fam/K/new", "other");
    std::filesystem::rename(scratch_ / "base/fam/K/new", scratch_ / "base/fam/K/a");
  };
  EXPECT_EQ(publish("fam/K").conflicts, 1U);
  EXPECT_FALSE(scratch_.exists("base/fam/K/done-a"));
  hooks_.once_compared = [&] { scratch_.write("base/fam/L/done-a", "mine"); };
  EXPECT_EQ(publish("fam/L").conflicts, 0U);
  EXPECT_FALSE(scratch_.exists("upper/fam/L/done-a"));
}

TEST(UnitLocks, UnitsDoNotShareLocks) {
  UnitLocks locks{LockRank::kStagedUnit};
  const auto held = locks.of("fam/A");
  for (int unit = 0; unit < 1000; ++unit) {
    EXPECT_NE(locks.of("fam/" + std::to_string(unit)), held);
  }
  EXPECT_EQ(locks.of("fam/A"), held);
}

TEST(UnitTurns, AJobWaitsForItsTurnOnlyForSomeTime) {
  using std::chrono::milliseconds;
  UnitTurns turns;
  const auto first = std::make_unique<UnitTurns::Turn>(turns, "fam/A", milliseconds(0));
  EXPECT_TRUE(first->is_held());
  EXPECT_TRUE(UnitTurns::Turn(turns, "fam/B", milliseconds(0)).is_held());
  EXPECT_FALSE(UnitTurns::Turn(turns, "fam/A", milliseconds(1)).is_held());
  EXPECT_FALSE(UnitTurns::Turn(turns, "fam/A", milliseconds(1)).is_held());
}

TEST(UnitTurns, AJobGetsItsTurnWhenTheOneBeforeItEnds) {
  constexpr std::chrono::hours kForever{24};
  UnitTurns turns;
  auto first = std::make_unique<UnitTurns::Turn>(turns, "fam/A", kForever);
  auto second = std::async(std::launch::async,
                           [&] { return UnitTurns::Turn(turns, "fam/A", kForever).is_held(); });
  first.reset();
  EXPECT_TRUE(second.get());
}

TEST_F(PublisherTest, AFileThatIsOpenForWritingWaits) {
  begin("K");
  put("fam/K/done-a", "2");
  struct stat st {};
  ASSERT_EQ(::stat((scratch_ / "upper/fam/K/done-a").c_str(), &st), 0);
  hooks_.writing.insert(st.st_ino);
  EXPECT_TRUE(publish("fam/K").busy);
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
  hooks_.writing.clear();
  EXPECT_EQ(publish("fam/K").entries, 1U);
}

// A process can map a passthrough file without a request to the daemon, and the mapping outlives
// the descriptor.
TEST_F(PublisherTest, AFileThatIsMappedForWritingWaits) {
  begin("K");
  put("fam/K/done-a", "2");
  auto fd = UniqueFd(::open((scratch_ / "upper/fam/K/done-a").c_str(), O_RDWR));
  void* const mapped = ::mmap(nullptr, 1, PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  fd.reset();
  EXPECT_TRUE(publish("fam/K").busy);
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
  ASSERT_EQ(::munmap(mapped, 1), 0);
  EXPECT_EQ(publish("fam/K").entries, 1U);
}

TEST_F(PublisherTest, AnotherNameOfAPublishedFileDoesNotLeadIntoTheBase) {
  begin("K");
  put("fam/K/done-a", "2");
  ASSERT_TRUE(changes::link(overlay_, "fam/K/done-a", "twin"));
  ASSERT_EQ(publish("fam/K").entries, 1U);
  ASSERT_TRUE(sys::write_all(open_writable(overlay_, "twin", O_WRONLY)->get(), "X"));
  EXPECT_EQ(scratch_.read("base/fam/K/done-a"), "2");
}

TEST_F(PublisherTest, SymlinksOutOfAnEntryAreRefused) {
  begin("K");
  put("fam/K/done-a", "2");
  ASSERT_TRUE(changes::make_symlink(overlay_, "fam/K/out", "../../../etc/passwd"));
  EXPECT_EQ(publish("fam/K").incomplete, 1U);
  EXPECT_EQ(counters_.publish_refused, 1U);
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
}

TEST_F(PublisherTest, PathsOfAnotherMountAreNotPublished) {
  ASSERT_TRUE(store_->record_mount_path("/ci-cache"));
  begin("K");
  put("fam/K/done-a", R"({"child": ["/ci-cache/.jobs/j/fam/K/a"]})");
  EXPECT_EQ(publish("fam/K").incomplete, 1U);
  EXPECT_EQ(counters_.publish_refused, 1U);
  begin("L");
  put("fam/L/done-a", R"({"child": ["/ci-cache/fam/L/a"], "other": "/fam not a path?", "n": 3})");
  EXPECT_EQ(publish("fam/L").incomplete, 1U);
  begin("M");
  put("fam/M/done-a", R"({"child": ["/ci-cache/fam/M/a"], "n": 3})");
  EXPECT_EQ(publish("fam/M").entries, 1U);
}

TEST_F(PublisherTest, EntriesWithRelativePathsAreNotPublishedAndAreReplaced) {
  ASSERT_TRUE(store_->record_mount_path("/ci-cache"));
  begin("K");
  put("fam/K/done-a", R"({"child": {"a.cubin": "cache/fam/K/a.cubin"}})");
  EXPECT_EQ(publish("fam/K").incomplete, 1U);
  scratch_.write("base/fam/L/done-a", R"({"child": {"a.cubin": "./fam/L/a.cubin"}})");
  put("fam/L/done-b", R"({"child": {"a.cubin": "/ci-cache/fam/L/a.cubin"}, "text": "x/y"})");
  EXPECT_EQ(publish("fam/L").entries, 1U);
  EXPECT_EQ(names("fam/L"), Names{"done-b"});
}

TEST_F(PublisherTest, AnEntryOfAnotherMountPathIsReplacedAsAWhole) {
  ASSERT_TRUE(store_->record_mount_path("/ci-cache"));
  scratch_.write("base/fam/K/a", "old");
  scratch_.write("base/fam/K/b", "old");
  scratch_.write("base/fam/K/done-a", R"(["/elsewhere/fam/K/a"])");
  begin("N");  // not "K", so that the view merges fam/K with the base's entry
  put("fam/K/done-b", R"(["/ci-cache/fam/K/a"])");
  ASSERT_TRUE(sys::write_all(open_writable(overlay_, "fam/K/a", O_WRONLY)->get(), "new"));
  EXPECT_EQ(publish("fam/K").entries, 1U);
  EXPECT_EQ(scratch_.read("base/fam/K/a"), "new");
  EXPECT_FALSE(scratch_.exists("base/fam/K/b"));
  EXPECT_EQ(names("fam/K"), (Names{"a", "done-b"}));
}

TEST_F(PublisherTest, AtAJobsEndOnlySuccessPublishesUnknownCaches) {
  begin("K");
  put("fam/K/half", "1");
  ASSERT_TRUE(changes::make_dir(overlay_, "other", 0755));
  put("other/file", "3");
  const auto ignore = [](auto, auto) {};
  PublishReport report = publisher_->publish_all(overlay_, hooks_, false, ignore);
  EXPECT_EQ(report.files, 0U);
  report = publisher_->publish_all(overlay_, hooks_, true, ignore);
  EXPECT_EQ(report.files, 1U);
  EXPECT_EQ(report.incomplete, 1U);
  EXPECT_EQ(scratch_.read("base/other/file"), "3");
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
}

TEST_F(PublisherTest, NothingIsLeftInStaging) {
  begin("K");
  put("fam/K/done-a", "2");
  (void)publish("fam/K");
  const auto left = sys::list_dir(store_->staging());
  ASSERT_TRUE(left);
  EXPECT_EQ(left->size(), 1U);  // only this daemon's lock is left
}

}  // namespace
}  // namespace cacheshim
