// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "fuse/jobs/caller.h"
#include "fuse/jobs/job.h"
#include "fuse/jobs/job_table.h"
#include "tests/unit/overlay_fixture.h"

namespace cacheshim {
namespace {

struct stat object(mode_t mode, uid_t uid, gid_t gid) {
  struct stat st {};
  st.st_mode = mode;
  st.st_uid = uid;
  st.st_gid = gid;
  st.st_nlink = 3;
  return st;
}

TEST(View, ShowsEverythingAsItsUsersOwn) {
  const View view{1001, 1001, {}};
  const struct stat shown = view.show(object(S_IFDIR | 01755, 0, 0), false, false);
  EXPECT_EQ(shown.st_uid, 1001U);
  EXPECT_EQ(shown.st_gid, 1001U);
  EXPECT_EQ(shown.st_mode, static_cast<mode_t>(S_IFDIR | 0755));  // no sticky bit
  EXPECT_EQ(shown.st_nlink, 1U);
}

TEST(View, LeavesAClosedBaseFileClosed) {
  const View view{1001, 1001, {20}};
  const auto owner = [&](mode_t mode, uid_t uid, gid_t gid, bool in_upper) {
    return view.show(object(S_IFREG | mode, uid, gid), in_upper, false).st_uid;
  };
  EXPECT_EQ(owner(0600, 0, 0, false), 0U);
  EXPECT_EQ(owner(0600, 0, 0, true), 1001U);    // in the layer it is the job's
  EXPECT_EQ(owner(0640, 0, 20, false), 1001U);  // by a supplementary group
  EXPECT_EQ(owner(0604, 1001, 0, false), 1001U);
  EXPECT_EQ(owner(0044, 1001, 0, false), 1001U);  // its own, though the mode closes it
}

TEST(View, IsClosedEvenBeforeItsFirstUserComes) {
  EXPECT_EQ(View{}.show(object(S_IFDIR | 0755, 0, 0), false, true).st_mode & 0777, 0700U);
  EXPECT_EQ((View{1001, 1, {}}).show(object(S_IFDIR | 0755, 0, 0), false, true).st_mode & 0777,
            0700U);
}

class JobTest : public OverlayTest {
 protected:
  static Caller caller(uid_t uid) { return {uid, uid, 0}; }
  NodeTable nodes_;
  Job job_{"j", std::make_shared<LowerStack>(std::vector{base_.get()}), entries_, counters_,
           nodes_};
};

TEST_F(JobTest, BelongsToTheFirstUserOtherThanRoot) {
  job_.begin({}, PublishPolicy::kComplete, false);
  (void)job_.enter(caller(0));
  EXPECT_FALSE(job_.view(0).uid);
  (void)job_.enter(caller(1001));
  (void)job_.enter(caller(1002));
  EXPECT_EQ(job_.view(0).uid, 1001U);
  EXPECT_EQ(job_.view_count(), 1U);
  EXPECT_TRUE(job_.may_change(1001));
  EXPECT_TRUE(job_.may_change(0));
  EXPECT_FALSE(job_.may_change(1002));
}

TEST_F(JobTest, ReportsItsFirstUserOnce) {
  job_.begin({}, PublishPolicy::kComplete, false);
  (void)job_.enter(caller(0));
  EXPECT_FALSE(job_.is_claimed());
  EXPECT_FALSE(job_.begin_telling_claim());
  (void)job_.enter(caller(1001));
  EXPECT_TRUE(job_.is_claimed());
  EXPECT_TRUE(job_.begin_telling_claim());
  EXPECT_FALSE(job_.begin_telling_claim());
  EXPECT_FALSE(job_.is_claim_told());
  job_.end_telling_claim();
  (void)job_.enter(caller(1001));
  EXPECT_FALSE(job_.begin_telling_claim());
  EXPECT_TRUE(job_.is_claim_told());
}

TEST_F(JobTest, SharedUidsHaveAViewEach) {
  job_.begin({}, PublishPolicy::kComplete, true);
  EXPECT_EQ(job_.enter(caller(1001)), 0U);
  EXPECT_EQ(job_.enter(caller(1002)), 1U);
  EXPECT_EQ(job_.enter(caller(1001)), 0U);
  EXPECT_EQ(job_.view(1).uid, 1002U);
}

TEST_F(JobTest, AnEnvironmentCanOnlyLowerThePolicy) {
  JobClaim claim;
  claim.publish = PublishPolicy::kComplete;
  job_.begin(claim, PublishPolicy::kEnd, false);
  EXPECT_EQ(job_.policy(), PublishPolicy::kEnd);
  claim.publish = PublishPolicy::kNever;
  job_.begin(claim, PublishPolicy::kEnd, false);
  EXPECT_EQ(job_.policy(), PublishPolicy::kNever);
}

TEST_F(JobTest, WaitersAreCalledOnce) {
  job_.begin({}, PublishPolicy::kComplete, false);
  int calls = 0;
  job_.on_end([&](std::optional<Outcome> outcome) { calls += outcome == Outcome::kSuccess; });
  PendingReplies replies = job_.finish(Outcome::kSuccess);
  EXPECT_EQ(calls, 0);
  replies.give();
  job_.on_end([&](std::optional<Outcome>) { calls += 10; });
  EXPECT_EQ(calls, 11);
}

TEST_F(JobTest, WaitersAreReleasedWithoutAnOutcomeWhileTheJobContinues) {
  job_.begin({}, PublishPolicy::kComplete, false);
  int refused = 0;
  job_.on_end([&](std::optional<Outcome> outcome) { refused += !outcome; });
  PendingReplies replies = job_.refuse_waits();
  EXPECT_EQ(refused, 0);
  replies.give();
  EXPECT_EQ(refused, 1);
  job_.finish(Outcome::kSuccess).give();
  EXPECT_EQ(refused, 1);
}

TEST_F(JobTest, SettlesWhenItsLastPublishingHasEnded) {
  job_.add_writer(1, 2);
  job_.begin_publishing();
  std::atomic<bool> ended{false};
  std::thread other([&] {
    job_.remove_writer(1, 2);
    ended = true;
    job_.end_publishing();
  });
  job_.wait_until_settled();
  EXPECT_TRUE(ended);
  other.join();
}

TEST_F(JobTest, AFileThatStaysOpenIsNotWaitedForToTheEnd) {
  job_.add_writer(1, 2);
  EXPECT_FALSE(job_.wait_until_closed(1, 2));
  EXPECT_TRUE(job_.wait_until_closed(1, 3));
  job_.wait_until_settled();  // returns
}

// A child that has exec'ed with the given environment, stopped until the test is done with it.
class Child {
 public:
  explicit Child(std::vector<std::string> environment) {
    pid_ = ::fork();
    if (pid_ == 0) {
      std::vector<char*> block;
      for (std::string& variable : environment) block.push_back(variable.data());
      block.push_back(nullptr);
      ::execle("/bin/sh", "sh", "-c", "kill -STOP $$", nullptr, block.data());
      ::_exit(127);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  ~Child() {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(CallerJobs, TakeTheJobOfTheCallersEnvironment) {
  CallerJobs jobs;
  const Child child({"CACHESHIM_JOB=nightly/7", "CACHESHIM_CYCLE=2", "CACHESHIM_PUBLISH=end"});
  const JobClaim claim = jobs.claim_of({::getuid(), ::getgid(), child.pid()});
  EXPECT_EQ(claim.job.view(), "nightly_7");
  EXPECT_EQ(claim.cycle.view(), "2");
  EXPECT_EQ(claim.publish, PublishPolicy::kEnd);
}

TEST(CallerJobs, KeepTwoCallersApart) {
  CallerJobs jobs;
  const Child one({"CACHESHIM_JOB=one"});
  const Child two({"CACHESHIM_JOB=two"});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(jobs.claim_of({0, 0, one.pid()}).job.view(), "one");
    EXPECT_EQ(jobs.claim_of({0, 0, two.pid()}).job.view(), "two");
  }
}

TEST(CallerJobs, GiveTheUsersOwnJobToACallerThatCannotBeSeen) {
  CallerJobs jobs;
  EXPECT_EQ(jobs.claim_of({1234, 1234, 0}).job.view(), "uid-1234");
}

// Of two jobs one begins after the other and ends before it: where it is active, the other one is.
TEST_F(OverlayTest, TheStatesOfAllJobsAreOfOneMoment) {
  constexpr int kReadings = 2000;
  NodeTable nodes;
  const Store store = Store::bare(scratch_.open_dir("base"));
  const NodeIndex directory = nodes.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir);
  JobTable table(store, entries_, counters_, nodes, directory, PublishPolicy::kNever, {});
  const auto begin = [&](const std::string& id) -> Job& { return table.ensure_active(id, {}); };
  for (int number = 0; number < 1000; ++number) begin("m" + std::to_string(number));
  std::atomic<bool> stop{false};
  std::atomic<int> turns{0};
  std::thread changes([&] {
    while (!stop) {
      Job& last = begin("z");
      Job& first = begin("a");
      first.finish(Outcome::kSuccess).give();
      last.finish(Outcome::kSuccess).give();
      ++turns;
    }
  });
  int wrong = 0;
  for (int reading = 0; reading < kReadings || turns < kReadings; ++reading) {
    const auto states = table.states();
    if (states.size() < 1002) continue;
    if (states.front().is_active && !states.back().is_active) ++wrong;
  }
  stop = true;
  changes.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace cacheshim
