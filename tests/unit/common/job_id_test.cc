// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "common/job_id.h"

namespace cacheshim {
namespace {

using namespace std::string_literals;

std::string job_of(const std::string& block) {
  return std::string(job_from_environment(EnvironmentBlock(block)).view());
}

std::string cycle_of(const std::string& block) {
  return std::string(cycle_from_environment(EnvironmentBlock(block)).view());
}

TEST(JobId, CharactersThatAreNotAllowedBecomeUnderscores) {
  EXPECT_EQ(JobId::from_text("a/b c:d\xc3\xa4.Z-9_").view(), "a_b_c_d__.Z-9_");
}

TEST(JobId, DotsAloneAreNoDirectoryName) {
  EXPECT_EQ(JobId::from_text(".").view(), "_");
  EXPECT_EQ(JobId::from_text("..").view(), "_.");
  EXPECT_EQ(JobId::from_text("...").view(), "...");
}

TEST(JobId, IsCutAtItsGreatestLength) {
  EXPECT_EQ(JobId::from_text(std::string(kMaxJobId + 1, 'x')).view().size(), kMaxJobId);
  JobId id = JobId::from_text(std::string(kMaxJobId, 'x'));
  id.append("y");
  EXPECT_EQ(id.view(), std::string(kMaxJobId, 'x'));
}

TEST(JobId, OfAUidHasItsDigits) {
  EXPECT_EQ(JobId::for_uid(0).view(), "uid-0");
  EXPECT_EQ(JobId::for_uid(4294967294U).view(), "uid-4294967294");
}

TEST(JobId, OfAUserInsteadOfAnotherIdHasTheUserInFront) {
  EXPECT_EQ(JobId::for_uid(7, "4711").view(), "uid-7.4711");
  EXPECT_EQ(JobId::for_uid(7, std::string(kMaxJobId, 'x')).view(),
            "uid-7." + std::string(kMaxJobId - 6, 'x'));
}

TEST(JobId, BelongsToAUserByConstruction) {
  for (const char* id : {"uid-20001", "uid-20001.4711", "uid-20001.", "uid-20001..x"}) {
    EXPECT_EQ(owner_of_id(id), 20001U) << id;
    EXPECT_FALSE(is_of_another_uid(id, 20001)) << id;
    EXPECT_TRUE(is_of_another_uid(id, 2000)) << id;
    EXPECT_TRUE(is_of_another_uid(id, 0)) << id;
  }
  for (const char* id : {"uid-020001", "uid-020001.x", "uid-4294987297", "uid-99999999999"}) {
    EXPECT_FALSE(owner_of_id(id)) << id;
    EXPECT_TRUE(is_of_another_uid(id, 20001)) << id;
  }
  for (const char* id :
       {"uid-", "uid-x", "uid-1x", "uid-.x", "uid.1", "xuid-1", "UID-1", "4711", ""}) {
    EXPECT_FALSE(owner_of_id(id)) << id;
    EXPECT_FALSE(is_of_another_uid(id, 20001)) << id;
    EXPECT_FALSE(is_own_job(id)) << id;
  }
  EXPECT_TRUE(is_own_job("uid-20001"));
  EXPECT_FALSE(is_own_job("uid-20001.4711"));
}

TEST(JobId, AnIdIsValidIfFromTextKeepsIt) {
  EXPECT_TRUE(is_job_id("a.B_c-1"));
  EXPECT_TRUE(is_job_id(std::string(kMaxJobId, 'x')));
  for (const std::string& bad :
       {""s, "."s, ".."s, "a/b"s, "a b"s, "\xc3\xa4"s, "a\0b"s, std::string(kMaxJobId + 1, 'x')}) {
    EXPECT_FALSE(is_job_id(bad)) << bad;
  }
}

TEST(JobId, SlurmComesAfterCacheshimJob) {
  EXPECT_EQ(job_of("SLURM_JOB_ID=7\0CACHESHIM_JOB=mine\0"s), "mine");
  EXPECT_EQ(job_of("SLURM_JOB_ID=7\0CACHESHIM_JOB=\0"s), "7");
}

TEST(JobId, GithubJoinsRunJobAndRunner) {
  EXPECT_EQ(job_of("RUNNER_NAME=gpu 1\0GITHUB_JOB=test\0GITHUB_RUN_ID=42\0CI_JOB_ID=9\0"s),
            "42-test-gpu_1");
  EXPECT_EQ(job_of("GITHUB_RUN_ID=42\0"s), "42");
  EXPECT_EQ(job_of("GITHUB_JOB=test\0CI_JOB_ID=9\0"s), "9");
}

TEST(JobId, TheOtherSchedulersFollowInOrder) {
  EXPECT_EQ(job_of("LSB_JOBID=4\0PBS_JOBID=3.head\0BUILD_TAG=j-2\0"s), "j-2");
  EXPECT_EQ(job_of("LSB_JOBID=4\0PBS_JOBID=3.head\0"s), "3.head");
  EXPECT_EQ(job_of("LSB_JOBID=4\0"s), "4");
  EXPECT_EQ(job_of("HOME=/root\0"s), "");
}

TEST(JobId, VariablesAreFoundByTheirWholeName) {
  EXPECT_EQ(job_of("XSLURM_JOB_ID=1\0SLURM_JOB_ID2=2\0SLURM_JOB_ID\0"s), "");
  EXPECT_EQ(job_of("SLURM_JOB_ID=last, without its NUL"), "last__without_its_NUL");
  EXPECT_EQ(job_of("SLURM_JOB_ID=a=b\0"s), "a_b");
}

TEST(JobId, CgroupNamesTheSlurmJob) {
  EXPECT_EQ(slurm_job_from_cgroup("0::/system.slice/slurmstepd.scope/job_123/step_0/user\n").view(),
            "123");
  EXPECT_EQ(slurm_job_from_cgroup("5:cpu:/x\n4:memory:/slurm/uid_1/job_9").view(), "9");
}

TEST(JobId, CgroupsOfOthersNameNoJob) {
  for (const char* text : {"", "0::/user.slice/job_x\n", "0::/job_\n", "0::/job_12.scope/a\n",
                           "0::/myjob_12/a\n", "0::/job_\n12/"}) {
    EXPECT_TRUE(slurm_job_from_cgroup(text).empty()) << text;
  }
}

TEST(JobId, CycleIsTheAttemptAndZeroByDefault) {
  EXPECT_EQ(cycle_of("GITHUB_RUN_ATTEMPT=2\0SLURM_RESTART_COUNT=1\0CACHESHIM_CYCLE=5\0"s), "5");
  EXPECT_EQ(cycle_of("GITHUB_RUN_ATTEMPT=2\0SLURM_RESTART_COUNT=1\0"s), "1");
  EXPECT_EQ(cycle_of("TORCHELASTIC_RESTART_COUNT=3\0GITHUB_RUN_ATTEMPT=2\0"s), "2");
  EXPECT_EQ(cycle_of("TORCHELASTIC_RESTART_COUNT=3\0"s), "3");
  EXPECT_EQ(cycle_of(""), "0");
}

}  // namespace
}  // namespace cacheshim
