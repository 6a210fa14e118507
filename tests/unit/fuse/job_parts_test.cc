// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fuse/jobs/job_life.h"
#include "fuse/jobs/job_policy.h"
#include "fuse/jobs/job_processes.h"
#include "fuse/jobs/job_views.h"
#include "fuse/jobs/pending_entries.h"
#include "fuse/jobs/unsettled_writes.h"
#include "store/layer/layer.h"
#include "tests/unit/support/fake_proc.h"
#include "tests/unit/support/scratch.h"

// Tests each part of a job separately.
namespace cacheshim {
namespace {

using namespace std::chrono_literals;

// ---- KnownProcesses

TEST(KnownProcesses, CountWhateverTheyExec) {
  KnownProcesses known;
  known.note(::getpid());
  EXPECT_EQ(known.find_living()->pid, ::getpid());
}

TEST(KnownProcesses, AreForgottenOnceTheyHaveExited) {
  KnownProcesses known;
  known.note(::getpid());
  const FakeProc empty;
  EXPECT_FALSE(known.find_living(empty.path()));
  EXPECT_FALSE(known.find_living()) << "forgotten";
}

TEST(KnownProcesses, DoNotIncludeALaterProcessWithTheSameNumber) {
  KnownProcesses known;
  known.note(::getpid());
  const FakeProc proc;
  proc.add(::getpid(), {.start_time = ticks_since_boot() + 1'000});
  EXPECT_FALSE(known.find_living(proc.path()));
}

TEST(KnownProcesses, DoNotIncludeZombies) {
  KnownProcesses known;
  known.note(::getpid());
  const FakeProc proc;
  proc.add(::getpid(), {.state = 'Z'});
  EXPECT_FALSE(known.find_living(proc.path()));
}

TEST(KnownProcesses, AreFoundByAThreadThatHasExited) {
  KnownProcesses known;
  pid_t thread = 0;
  std::thread([&] {
    thread = ::gettid();
    known.note(thread);
  }).join();
  ASSERT_NE(thread, ::getpid());
  EXPECT_EQ(known.find_living()->pid, ::getpid());
}

TEST(KnownProcesses, IgnoreACallerOutsideThePidNamespace) {
  KnownProcesses known;
  known.note(0);
  EXPECT_EQ(known.count(), 0U);
}

// ---- UnsettledWrites

// Much longer than any test runs.
constexpr auto kForever = std::chrono::milliseconds(600'000);

TEST(UnsettledWrites, AreSettledWhenTheLastPublishingHasEnded) {
  UnsettledWrites unsettled(kForever);
  unsettled.add_writer(1, 2);
  unsettled.begin_publishing();
  std::atomic<bool> ended{false};
  std::thread other([&] {
    unsettled.remove_writer(1, 2);
    ended = true;
    unsettled.end_publishing();
  });
  unsettled.wait();
  EXPECT_TRUE(ended);
  other.join();
}

TEST(UnsettledWrites, AWaitGivesUpAFileThatStaysOpen) {
  UnsettledWrites unsettled(1ms);
  unsettled.add_writer(1, 2);
  EXPECT_FALSE(unsettled.wait_until_closed(1, 2));
  EXPECT_TRUE(unsettled.wait_until_closed(1, 3));
  unsettled.wait();  // returns immediately
  EXPECT_TRUE(unsettled.is_being_written(1, 2));
}

TEST(UnsettledWrites, AFileIsWrittenUntilItsLastWriterCloses) {
  UnsettledWrites unsettled(kForever);
  unsettled.add_writer(1, 2);
  unsettled.add_writer(1, 2);
  unsettled.remove_writer(1, 2);
  EXPECT_TRUE(unsettled.is_being_written(1, 2));
  EXPECT_FALSE(unsettled.is_being_written(2, 1));
  std::thread other([&] { unsettled.remove_writer(1, 2); });
  EXPECT_TRUE(unsettled.wait_until_closed(1, 2));
  other.join();
  EXPECT_FALSE(unsettled.is_being_written(1, 2));
}

// ---- PendingEntries

TEST(PendingEntries, PostponedEntriesAreTakenOnce) {
  PendingEntries pending;
  pending.postpone("fam/K");
  pending.postpone("fam/K");
  pending.postpone("fam/L");
  EXPECT_EQ(pending.take_postponed(), (std::vector<std::string>{"fam/K", "fam/L"}));
  EXPECT_TRUE(pending.take_postponed().empty());
}

TEST(PendingEntries, TheReleaseOfALockTakesItsOwnFiles) {
  PendingEntries pending;
  pending.note_built("fam/K/a");
  pending.note_built("fam/L/a");
  const auto in_k = [](const std::string& path) { return path.starts_with("fam/K/"); };
  EXPECT_EQ(pending.take_built(in_k), std::vector<std::string>{"fam/K/a"});
  EXPECT_TRUE(pending.take_built(in_k).empty());
  EXPECT_TRUE(pending.has_built());
  pending.clear();
  EXPECT_FALSE(pending.has_built());
}

TEST(PendingEntries, NamesBeyondTheLimitAreDropped) {
  PendingEntries pending;
  constexpr std::size_t kLong = 4000;
  for (int i = 0; i < 2000; ++i) {
    pending.note_built("fam/K/" + std::to_string(i) + std::string(kLong, 'x'));
    pending.postpone("fam/" + std::to_string(i) + std::string(kLong, 'x'));
  }
  EXPECT_LE(pending.take_postponed().size() * kLong, PendingEntries::kMostBytes);
  const auto all = [](const std::string&) { return true; };
  EXPECT_LE(pending.take_built(all).size() * kLong, PendingEntries::kMostBytes);
  pending.postpone("fam/K");
  EXPECT_EQ(pending.take_postponed(), std::vector<std::string>{"fam/K"});
}

// ---- JobLife

const auto end_waiter = std::make_shared<int>();

TEST(JobLife, WaitersAreCalledOnce) {
  JobLife life;
  life.begin("1", 0);
  int calls = 0;
  life.on_end(end_waiter,
              [&](std::optional<Outcome> outcome) { calls += outcome == Outcome::kSuccess; });
  PendingReplies replies = life.end(Outcome::kSuccess);
  EXPECT_EQ(calls, 0);
  replies.give();
  life.on_end(end_waiter, [&](std::optional<Outcome>) { calls += 10; });
  EXPECT_EQ(calls, 11);
}

TEST(JobLife, CallbacksOfDestroyedWaitersAreDropped) {
  JobLife life;
  life.begin("1", 0);
  const auto held = std::make_shared<int>();  // the callback is its second owner
  life.on_end(std::make_shared<int>(), [held](std::optional<Outcome>) {});
  EXPECT_EQ(held.use_count(), 2);
  life.on_end(end_waiter, [](std::optional<Outcome>) {});
  EXPECT_EQ(held.use_count(), 1);
}

TEST(JobLife, WaitersAreReleasedWithoutAnOutcomeWhileTheJobContinues) {
  JobLife life;
  life.begin("1", 0);
  int refused = 0;
  life.on_end(end_waiter, [&](std::optional<Outcome> outcome) { refused += !outcome; });
  PendingReplies replies = life.end_waits();
  EXPECT_EQ(refused, 0);
  replies.give();
  EXPECT_EQ(refused, 1);
  EXPECT_TRUE(life.is_active());
  life.end(Outcome::kSuccess).give();
  EXPECT_EQ(refused, 1);
}

TEST(JobLife, ANewCycleHasNoOutcome) {
  std::atomic<std::uint64_t> changes{0};
  JobLife life(&changes);
  life.begin("1", 10);
  life.end(Outcome::kFailure).give();
  EXPECT_EQ(life.outcome(), Outcome::kFailure);
  EXPECT_FALSE(life.is_active());
  life.begin("2", 20);
  EXPECT_EQ(life.outcome(), Outcome::kNone);
  EXPECT_EQ(life.cycle(), "2");
  EXPECT_EQ(life.started(), 20);
  EXPECT_EQ(changes, 3U);
}

// ---- JobPolicy

TEST(JobPolicy, AnEnvironmentCanOnlyRestrictIt) {
  JobPolicy policy("j", {});
  policy.begin(PublishPolicy::kEnd, PublishPolicy::kComplete);
  EXPECT_EQ(policy.effective(), PublishPolicy::kEnd);
  policy.begin(PublishPolicy::kEnd, PublishPolicy::kNever);
  EXPECT_EQ(policy.effective(), PublishPolicy::kNever);
  policy.begin(PublishPolicy::kEnd, std::nullopt);
  EXPECT_EQ(policy.effective(), PublishPolicy::kEnd);
}

class JobPolicyTest : public ::testing::Test {
 protected:
  JobPolicyTest() { policy_.begin(PublishPolicy::kComplete, std::nullopt); }
  // Takes over the layer of job j as a new daemon with this policy does.
  Layer take(const JobPolicy& policy) {
    LayerRecord wanted;
    wanted.job = "j";
    wanted.cycle = "1";
    wanted.node = "n";
    wanted.uid = 1001;
    policy.fill(wanted);
    auto layer = Layer::take(layers_.get(), wanted);
    EXPECT_TRUE(layer);
    return *std::move(layer);
  }
  Scratch scratch_;
  UniqueFd layers_ = scratch_.open_dir("layers");
  JobPolicy policy_{"j", {.is_restricted = true}};
};

TEST_F(JobPolicyTest, ARefusalIsRecordedInTheLayer) {
  Layer layer = take(policy_);
  policy_.take_over(layer);
  EXPECT_TRUE(layer.record().vouched);
  EXPECT_TRUE(policy_.may_publish());
  ASSERT_TRUE(policy_.refuse("uid 7 has written", &layer));
  EXPECT_EQ(layer.record().refused, "uid 7 has written");
  EXPECT_FALSE(layer.record().vouched);
  EXPECT_TRUE(policy_.is_refused());
  EXPECT_FALSE(policy_.may_publish());
  EXPECT_EQ(policy_.wanted(), PublishPolicy::kComplete);
}

TEST_F(JobPolicyTest, TheFirstReasonStays) {
  ASSERT_TRUE(policy_.refuse("uid 7 has written", nullptr));
  ASSERT_TRUE(policy_.refuse("uid 8 has written", nullptr));
  EXPECT_EQ(policy_.why_refused(), "uid 7 has written");
}

TEST_F(JobPolicyTest, TheNextDaemonTakesOverARefusal) {
  {
    Layer layer = take(policy_);
    ASSERT_TRUE(policy_.refuse("uid 7 has written", &layer));
  }
  JobPolicy next("j", {.is_restricted = false});
  Layer layer = take(next);
  next.take_over(layer);
  EXPECT_TRUE(next.is_refused());
  EXPECT_EQ(next.why_refused(), "uid 7 has written");
}

TEST_F(JobPolicyTest, ALayerWithUncheckedWritersIsRefused) {
  JobPolicy unrestricted("j", {.is_restricted = false});
  { const Layer layer = take(unrestricted); }
  Layer layer = take(policy_);
  policy_.take_over(layer);
  EXPECT_FALSE(policy_.may_publish());
  EXPECT_FALSE(layer.record().refused.empty());
}

TEST_F(JobPolicyTest, ALayerIsNoLongerVouchedForOnceEverybodyMayPublish) {
  { const Layer layer = take(policy_); }
  JobPolicy unrestricted("j", {.is_restricted = false});
  auto layer = Layer::take_existing(layers_.get(), "j", "1@n");
  ASSERT_TRUE(layer);
  ASSERT_TRUE(layer->record().vouched);
  unrestricted.take_over(*layer);
  EXPECT_FALSE(layer->record().vouched);
  EXPECT_TRUE(unrestricted.may_publish());
}

TEST_F(JobPolicyTest, ARefusalThatCannotBeRecordedIsTriedAgain) {
  Layer layer = take(policy_);
  // A directory with the record's name makes writing the record fail.
  const std::string record = "layers/" + layer.path() + "/" + kLayerRecordFile;
  std::filesystem::remove(scratch_ / record);
  std::filesystem::create_directory(scratch_ / record);
  EXPECT_FALSE(policy_.refuse("uid 7 has written", &layer));
  EXPECT_FALSE(policy_.is_refused()) << "the change that causes it must fail";
  EXPECT_FALSE(policy_.may_publish());
  std::filesystem::remove(scratch_ / record);
  EXPECT_TRUE(policy_.refuse("uid 8 has written", &layer));
  EXPECT_TRUE(policy_.is_refused());
  const auto saved = parse_layer_record(scratch_.read(record));
  ASSERT_TRUE(saved) << "there is no record";
  EXPECT_EQ(saved->refused, "uid 7 has written");
}

TEST_F(JobPolicyTest, ARefusalEndsWithTheLayer) {
  ASSERT_TRUE(policy_.refuse("uid 7 has written", nullptr));
  policy_.forget_layer();
  EXPECT_TRUE(policy_.may_publish());
  EXPECT_EQ(policy_.why_refused(), "");
  EXPECT_FALSE(policy_.is_refused());
}

// ---- JobViews

class JobViewsTest : public ::testing::Test {
 protected:
  static Caller caller(uid_t uid) { return {uid, uid, 0}; }
  static struct stat file_of(uid_t uid) {
    struct stat st {};
    st.st_mode = S_IFREG | 0644;
    st.st_uid = uid;
    return st;
  }
  JobUse use_;
  ViewFilter filter_{"j", nullptr};
  JobViews views_{{}, use_, filter_};
};

TEST_F(JobViewsTest, TheFirstViewIsClosedToOthersOnceItIsClaimed) {
  views_.begin(false);
  EXPECT_FALSE(views_.is_closed_to(1002));
  (void)views_.enter(caller(1001));
  EXPECT_TRUE(views_.is_closed_to(1002));
  EXPECT_TRUE(views_.is_closed_to(0));
  EXPECT_FALSE(views_.is_closed_to(1001));
}

TEST_F(JobViewsTest, ARecordedOwnerHasNothingToInvalidate) {
  views_.begin(false, 1001);
  EXPECT_EQ(views_.owner(), 1001U);
  EXPECT_TRUE(views_.claim.is_invalidated());
  EXPECT_FALSE(views_.claim.begin_invalidation());
}

TEST_F(JobViewsTest, RootsOwnViewIsClosedToOthersFromTheStart) {
  JobViews::Settings settings;
  settings.owner = 0;
  JobViews views(settings, use_, filter_);
  (void)views.enter(caller(1001));
  EXPECT_EQ(views.owner(), 0U);
  EXPECT_TRUE(views.claim.is_invalidated());
}

TEST_F(JobViewsTest, EachSlotShowsItsOwnUser) {
  views_.begin(true);
  const ViewSlot one = views_.enter(caller(1001));
  const ViewSlot two = views_.enter(caller(1002));
  EXPECT_EQ(views_.show(one, file_of(0), true, false).st_uid, 1001U);
  EXPECT_EQ(views_.show(two, file_of(0), true, false).st_uid, 1002U);
  EXPECT_EQ(views_.show(9, file_of(0), true, false).st_uid, 1001U) << "an unknown slot";
}

TEST_F(JobViewsTest, ANewCycleThatSharesNoUidsIsTheFirstOwnersAlone) {
  views_.begin(true);
  (void)views_.enter(caller(1001));
  const ViewSlot two = views_.enter(caller(1002));
  EXPECT_TRUE(views_.may_change(1002));
  views_.end();
  views_.begin(false);
  EXPECT_EQ(views_.enter(caller(1002)), 0);
  EXPECT_FALSE(views_.may_change(1002));
  EXPECT_EQ(views_.show(two, file_of(0), true, false).st_uid, 1001U);
}

TEST_F(JobViewsTest, WithOwnersKeptEachFileHasItsOwn) {
  JobViews::Settings settings;
  settings.owners.keep = true;
  JobViews views(settings, use_, filter_);
  (void)views.enter(caller(1001));
  EXPECT_EQ(views.show(0, file_of(7), true, false).st_uid, 7U);
  EXPECT_EQ(views.show(0, file_of(7), true, true).st_uid, 1001U) << "the view's root";
}

TEST_F(JobViewsTest, AnEntryCountsAsUse) {
  EXPECT_EQ(use_.last_use(), JobUse::Clock::time_point());
  (void)views_.enter(caller(1001));
  EXPECT_GT(use_.last_use(), JobUse::Clock::time_point());
}

}  // namespace
}  // namespace cacheshim
