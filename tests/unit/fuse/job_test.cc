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
#include "tests/unit/support/overlay_fixture.h"

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
  EXPECT_EQ(shown.st_mode, static_cast<mode_t>(S_IFDIR | 0755));  // without the sticky bit
  EXPECT_EQ(shown.st_nlink, 1U);
}

TEST(View, LeavesAClosedBaseFileClosed) {
  const View view{1001, 1001, {20}};
  const auto owner = [&](mode_t mode, uid_t uid, gid_t gid, bool in_upper) {
    return view.show(object(S_IFREG | mode, uid, gid), in_upper, false).st_uid;
  };
  EXPECT_EQ(owner(0600, 0, 0, false), 0U);
  EXPECT_EQ(owner(0600, 0, 0, true), 1001U);    // in the layer, the file belongs to the job's user
  EXPECT_EQ(owner(0640, 0, 20, false), 1001U);  // the user's supplementary group may read it
  EXPECT_EQ(owner(0604, 1001, 0, false), 1001U);
  // The file already belongs to the user, although its mode denies the user access.
  EXPECT_EQ(owner(0044, 1001, 0, false), 1001U);
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
  Job job_{"j", std::make_shared<LowerStack>(std::vector{base_.get()}), entries_, counters_, nodes_};
};

TEST_F(JobTest, BelongsToTheFirstUserOtherThanRoot) {
  job_.begin({}, PublishPolicy::kComplete, false);
  (void)job_.views.enter(caller(0));
  EXPECT_FALSE(job_.views.owner());
  (void)job_.views.enter(caller(1001));
  (void)job_.views.enter(caller(1002));
  EXPECT_EQ(job_.views.owner(), 1001U);
  EXPECT_EQ(job_.views.count(), 1U);
  EXPECT_TRUE(job_.views.may_change(1001));
  EXPECT_TRUE(job_.views.may_change(0));
  EXPECT_FALSE(job_.views.may_change(1002));
}

TEST_F(JobTest, ReportsItsFirstUserOnce) {
  job_.begin({}, PublishPolicy::kComplete, false);
  (void)job_.views.enter(caller(0));
  EXPECT_FALSE(job_.views.claim.is_made());
  EXPECT_FALSE(job_.views.claim.begin_invalidation());
  (void)job_.views.enter(caller(1001));
  EXPECT_TRUE(job_.views.claim.is_made());
  EXPECT_TRUE(job_.views.claim.begin_invalidation());
  EXPECT_FALSE(job_.views.claim.begin_invalidation());
  EXPECT_FALSE(job_.views.claim.is_invalidated());
  job_.views.claim.end_invalidation();
  (void)job_.views.enter(caller(1001));
  EXPECT_FALSE(job_.views.claim.begin_invalidation());
  EXPECT_TRUE(job_.views.claim.is_invalidated());
}

TEST_F(JobTest, SharedUidsHaveAViewEach) {
  job_.begin({}, PublishPolicy::kComplete, true);
  EXPECT_EQ(job_.views.enter(caller(1001)), 0U);
  EXPECT_EQ(job_.views.enter(caller(1002)), 1U);
  EXPECT_EQ(job_.views.enter(caller(1001)), 0U);
  EXPECT_EQ(job_.views.view(1).uid, 1002U);
}

TEST_F(JobTest, TheEndClearsWhatConcernsTheCycle) {
  job_.begin({}, PublishPolicy::kComplete, false);
  (void)job_.views.enter({1001, 1001, ::getpid()});
  job_.use.runs = 2;
  job_.pending.note_built("fam/K/a");
  job_.reads.note_read("fam/K", 7);
  job_.finish(Outcome::kFailure).give();
  EXPECT_FALSE(job_.views.known_process());
  EXPECT_EQ(job_.use.runs, 0);
  EXPECT_FALSE(job_.pending.has_built());
  EXPECT_FALSE(job_.reads.has_any());
  EXPECT_EQ(job_.views.owner(), 1001U) << "the view keeps its owner";
  ++job_.use.runs;  // a `cacheshim run` that started before the job ended
  job_.begin({}, PublishPolicy::kComplete, false);
  EXPECT_EQ(job_.use.runs, 0);
}

TEST_F(JobTest, ABeginningStartsTheTotalAnew) {
  job_.begin({}, PublishPolicy::kComplete, false);
  PublishReport report;
  report.entries = 1;
  report.files = 3;
  job_.publishing.count(report);
  job_.publishing.count(report);
  EXPECT_EQ(job_.publishing.total().files, 6U);
  job_.finish(Outcome::kSuccess).give();
  EXPECT_EQ(job_.publishing.total().entries, 2U) << "the end reports it";
  job_.begin({}, PublishPolicy::kComplete, false);
  EXPECT_EQ(job_.publishing.total().files, 0U);
}

TEST_F(JobTest, AUnitIsKeptForItsLastReasonUntilItIsPublished) {
  PublishHooks& hooks = job_.publishing;
  EXPECT_TRUE(hooks.note_why_unpublished("fam/K", "open"));
  EXPECT_FALSE(hooks.note_why_unpublished("fam/K", "open"));
  EXPECT_TRUE(hooks.note_why_unpublished("fam/K", "incomplete"));
  EXPECT_EQ(job_.publishing.why_unpublished("fam/K"), "incomplete");
  EXPECT_TRUE(hooks.note_why_unpublished("fam/K", ""));
  EXPECT_FALSE(hooks.note_why_unpublished("fam/K", ""));
  EXPECT_EQ(job_.publishing.why_unpublished("fam/K"), "");
  EXPECT_TRUE(hooks.note_conflict("fam/K"));
  EXPECT_FALSE(hooks.note_conflict("fam/K"));
  job_.publishing.forget_layer();
  EXPECT_TRUE(hooks.note_conflict("fam/K"));
}

TEST_F(JobTest, RecordsOfKeptUnitsHaveALimit) {
  PublishHooks& hooks = job_.publishing;
  const auto name = [](int i) { return "fam/" + std::to_string(i) + std::string(4000, 'x'); };
  std::size_t kept = 0;
  std::size_t conflicts = 0;
  for (int i = 0; i < 1000; ++i) {
    kept += hooks.note_why_unpublished(name(i), "the job may not publish") ? 1U : 0U;
    conflicts += hooks.note_conflict(name(i)) ? 1U : 0U;
  }
  EXPECT_LE(kept * 4000, JobPublishing::kMostBytes);
  EXPECT_LE(conflicts * 4000, JobPublishing::kMostBytes);
  EXPECT_FALSE(hooks.note_why_unpublished(name(999), "the job may not publish"))
      << "neither counted nor logged";
  EXPECT_EQ(job_.publishing.why_unpublished(name(999)), "");
  job_.publishing.forget_layer();
  EXPECT_TRUE(hooks.note_why_unpublished(name(999), "open"));
}

// A stopped child process that has called exec with the given environment. The destructor kills the
// child.
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

// Job "a" begins after job "z" and ends before it. So no list of states may show "a" active and "z"
// ended.
TEST_F(OverlayTest, TheStatesOfAllJobsAreConsistent) {
  constexpr int kReadings = 2000;
  UserLimits limits{{}};
  NodeTable nodes;
  const Store store = Store::bare(scratch_.open_dir("base"));
  const NodeIndex directory = nodes.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir);
  JobTable table(store, entries_, counters_, nodes, directory, PublishPolicy::kNever, {});
  const auto begin = [&](const std::string& id) -> Job& {
    return **table.ensure_active(id, {}, limits.account(0));
  };
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
