// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "fuse/jobs/idle_jobs.h"
#include "fuse/jobs/job_processes.h"
#include "tests/unit/support/fake_proc.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

constexpr uid_t kJobUser = 31001;
constexpr uid_t kOtherUser = 31002;

class JobProcesses : public ::testing::Test {
 protected:
  LivingProcesses find(const std::vector<JobUsers>& jobs) {
    return find_living_processes(jobs, environments_, proc_.path());
  }
  pid_t find_one(const std::string& job, const std::vector<uid_t>& uids = {kJobUser}) {
    const auto found = find({{job, uids}});
    return found.empty() ? 0 : found.at(job).pid;
  }
  FakeProc proc_;
  EnvironmentReader environments_;
};

TEST_F(JobProcesses, AreFoundByTheirEnvironment) {
  proc_.add(10, {.environment = std::string("A=b\0CACHESHIM_JOB=j\0", 19)});
  proc_.add(11, {.environment = std::string("CACHESHIM_JOB=jj\0", 17)});
  EXPECT_EQ(find_one("j"), 10);
  EXPECT_EQ(find_one("none"), 0);
}

TEST_F(JobProcesses, AreFoundByTheCgroupOfASlurmJob) {
  proc_.add(10, {.cgroup = "4:freezer:/slurm_vm/uid_31001/job_4711/step_batch\n0::/\n"});
  EXPECT_EQ(find_one("4711"), 10);
  EXPECT_EQ(find_one("471"), 0);
}

TEST_F(JobProcesses, MayNameTheJobOfAnotherUser) {
  proc_.add(10, {.environment = std::string("CACHESHIM_JOB=j\0", 16)});
  const std::string own = "uid-" + std::to_string(kJobUser) + ".j";
  EXPECT_EQ(find_one(own), 10);
  EXPECT_EQ(find_one(own, {kJobUser + 1}), 0);
  EXPECT_EQ(find_one(own + "j"), 0);
}

TEST_F(JobProcesses, MayNameAnIdThatIsTruncatedInTheirOwnJob) {
  const std::string named(kMaxJobId, 'x');
  proc_.add(10, {.environment = "CACHESHIM_JOB=" + named + std::string(1, '\0')});
  EXPECT_EQ(find_one(std::string(JobId::for_uid(kJobUser, named).view())), 10);
}

TEST_F(JobProcesses, OfASlurmJobMayNameAnotherJob) {
  proc_.add(10, {.environment = std::string("CACHESHIM_JOB=own\0", 18), .cgroup = "0::/job_5/x\n"});
  EXPECT_EQ(find({{"own", {kJobUser}}, {"5", {kJobUser}}}).size(), 2U);
}

TEST_F(JobProcesses, AreFoundByAnAncestorsEnvironment) {
  proc_.add(10, {.environment = std::string("CACHESHIM_JOB=j\0", 16), .uid = kOtherUser});
  proc_.add(11, {.parent = 10});
  proc_.add(12, {.parent = 11});
  EXPECT_TRUE(find_one("j") == 11 || find_one("j") == 12);
  proc_.remove(10);
  EXPECT_EQ(find_one("j"), 0);
}

TEST_F(JobProcesses, OfOtherUsersDoNotCount) {
  proc_.add(10, {.environment = std::string("CACHESHIM_JOB=j\0", 16), .uid = kOtherUser});
  EXPECT_EQ(find_one("j"), 0);
  EXPECT_EQ(find_one("j", {kJobUser, kOtherUser}), 10);
  EXPECT_EQ(find_one("j", {}), 10) << "nobody has used the job yet";
  proc_.add(11, {.environment = std::string("CACHESHIM_JOB=j\0", 16), .uid = 0});
  EXPECT_EQ(find_one("j"), 11);
}

TEST_F(JobProcesses, CountForAllJobsOfTheirUserIfTheirEnvironmentCannotBeRead) {
  EnvironmentReader environments([](pid_t, const std::string&) { return Errno(ETIMEDOUT); }, {});
  proc_.add(10, {});
  const auto found = find_living_processes({{"j", {kJobUser}}, {"other", {kOtherUser}}},
                                           environments, proc_.path());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.at("j").pid, 10);
}

TEST_F(JobProcesses, ThatAreZombiesDoNotCount) {
  proc_.add(10, {.cgroup = "0::/job_5\n", .state = 'Z'});
  EXPECT_EQ(find_one("5"), 0);
  proc_.add(11, {.parent = 10});
  EXPECT_EQ(find_one("5"), 11);
}

TEST_F(JobProcesses, DoNotIncludeTheDaemon) {
  proc_.add(::getpid(), {.environment = std::string("CACHESHIM_JOB=j\0", 16)});
  EXPECT_EQ(find_one("j"), 0);
}

TEST_F(JobProcesses, WithParentsInACycleAreReadOnce) {
  proc_.add(10, {.parent = 11});
  proc_.add(11, {.parent = 10, .environment = std::string("CACHESHIM_JOB=j\0", 16)});
  EXPECT_NE(find_one("j"), 0);
}

TEST_F(JobProcesses, WithALongLineOfAncestorsAreFound) {
  proc_.add(2, {.environment = std::string("CACHESHIM_JOB=j\0", 16), .uid = kOtherUser});
  for (pid_t pid = 3; pid < 63; ++pid) proc_.add(pid, {.parent = pid - 1, .uid = kOtherUser});
  proc_.add(63, {.parent = 62});
  EXPECT_EQ(find_one("j"), 63);
}

TEST_F(JobProcesses, AreTheSameOnlyWithTheSameStartTime) {
  proc_.add(10, {.start_time = 7});
  EXPECT_TRUE(is_living({10, 7}, proc_.path()));
  EXPECT_FALSE(is_living({10, 8}, proc_.path()));
  EXPECT_FALSE(is_living({11, 7}, proc_.path()));
}

class IdleJobsTest : public OverlayTest {
 protected:
  Job& begin(const std::string& id) {
    Job& job = **table_.ensure_active(id, {}, limits_.account(0));
    (void)job.views.enter({kJobUser, kJobUser, 0});
    return job;
  }
  // Calls tick() every 10 ms until `is_over` returns true, for at most one second. One call does not suffice, because
  // another thread reads /proc.
  void tick_until(const std::function<bool()>& is_over) {
    for (int round = 0; round < 100 && !is_over(); ++round) {
      idle_.tick();
      ::usleep(10'000);
    }
  }

  FakeProc proc_;
  UserLimits limits_{{}};
  NodeTable nodes_;
  Store store_ = Store::bare(scratch_.open_dir("base"));
  JobTable table_{store_,
                  entries_,
                  counters_,
                  nodes_,
                  nodes_.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir),
                  PublishPolicy::kNever,
                  {}};
  std::vector<std::string> ended_;
  IdleJobs idle_{table_, std::chrono::seconds(0),
                 [this](Job& job) {
                   ended_.push_back(job.id);
                   job.finish(Outcome::kNone).give();
                 },
                 proc_.path()};
};

TEST_F(IdleJobsTest, AJobWithoutProcessesEnds) {
  begin("j");
  tick_until([&] { return !ended_.empty(); });
  EXPECT_EQ(ended_, std::vector<std::string>{"j"});
}

TEST_F(IdleJobsTest, AJobWithALivingProcessEndsAfterIt) {
  begin("dead");
  const Job& job = begin("j");
  proc_.add(10, {.environment = std::string("CACHESHIM_JOB=j\0", 16)});
  tick_until([&] { return !ended_.empty(); });
  const auto before = job.use.last_use();
  for (int round = 0; round < 20; ++round) idle_.tick();
  EXPECT_EQ(ended_, std::vector<std::string>{"dead"});
  EXPECT_GT(job.use.last_use(), before) << "its idle time begins at its process's end";
  proc_.remove(10);
  tick_until([&] { return ended_.size() == 2; });
  EXPECT_EQ(ended_.back(), "j");
}

TEST_F(IdleJobsTest, AJobWithAnOpenFileOrARunOrOfAUserAloneDoesNotEnd) {
  begin("uid-31001");
  begin("open").use.open_files = 1;
  begin("run").use.runs = 1;
  begin("last");
  tick_until([&] { return !ended_.empty(); });
  EXPECT_EQ(ended_, std::vector<std::string>{"last"});
}

TEST_F(IdleJobsTest, AJobWithAKnownProcessDoesNotEnd) {
  proc_.add(::getpid(), {});  // a process that names no job
  (void)begin("j").views.enter({kJobUser, kJobUser, ::getpid()});
  begin("last");
  tick_until([&] { return !ended_.empty(); });
  EXPECT_EQ(ended_, std::vector<std::string>{"last"});
}

}  // namespace
}  // namespace cacheshim
