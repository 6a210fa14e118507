// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/cgroup_proof.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "fuse/jobs/caller.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

// Simulates cgroup hierarchies with plain directories.
class CgroupProofTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give directories away";
  }
  void make(const std::string& path, uid_t owner = 0) {
    std::filesystem::create_directories(scratch_ / path);
    ASSERT_EQ(::chown((scratch_ / path).c_str(), owner, owner), 0);
  }
  // Returns the job that `text`, the content of /proc/PID/cgroup, proves. The simulated mounts:
  //  v2/: cgroup v2
  //  v1/: cgroup v1, the controllers cpu and cpuacct
  //  part/: cgroup v1, the directory /docker/x of the memory controller
  //  named/: cgroup v1, the named hierarchy "systemd"
  std::string job_of(const std::string& text) const {
    const std::string top = scratch_.path();
    const CgroupProof proof(
        fmt::format("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
                    "32 31 0:29 / {0}/v2 rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
                    "33 31 0:30 / {0}/v1 rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
                    "34 31 0:31 /docker/x {0}/part rw,relatime - cgroup cgroup rw,memory\n"
                    "35 31 0:32 / {0}/named rw,relatime - cgroup cgroup rw,xattr,name=systemd\n",
                    top));
    return std::string(proof.job_of(text).view());
  }
  Scratch scratch_;
};

TEST_F(CgroupProofTest, RootsDirectoriesProveTheJob) {
  make("v2/system.slice/slurmstepd.scope/job_4711/step_0");
  make("v1/slurm/uid_1000/job_12");
  make("part/job_13");
  make("named/job_14");
  EXPECT_EQ(job_of("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n"), "4711");
  EXPECT_EQ(job_of("9:name=systemd:/\n4:cpu,cpuacct:/slurm/uid_1000/job_12/step_0\n0::/\n"), "12");
  EXPECT_EQ(job_of("4:memory:/docker/x/job_13\n"), "13");
  EXPECT_EQ(job_of("1:name=systemd:/job_14\n"), "14");
}

TEST_F(CgroupProofTest, SlurmsDirectoriesShowThatItsJobsCanBeProved) {
  const auto has_slurm = [&](const char* tree) {
    return CgroupProof(
               fmt::format("32 31 0:29 / {}/{} rw - cgroup2 cgroup2 rw\n", scratch_.path(), tree))
        .has_slurm();
  };
  for (const char* tree : {"a/slurm/x", "b/slurm_node", "c/system.slice/slurmstepd.scope",
                           "d/system.slice/node_slurmstepd.scope"}) {
    make(tree);
  }
  make("e/system.slice/other.scope");
  make("f/user.slice/slurm");
  for (const char* tree : {"a", "b", "c", "d"}) EXPECT_TRUE(has_slurm(tree)) << tree;
  for (const char* tree : {"e", "f", "none"}) EXPECT_FALSE(has_slurm(tree)) << tree;
}

// The kernel reports pid 0 for a caller outside the daemon's PID namespace, so the daemon cannot read the caller's
// cgroup.
TEST_F(CgroupProofTest, ACallerOutsideThePidNamespaceHasNoProof) {
  make("slurm/system.slice/slurmstepd.scope");
  make("other");
  const auto proof_of = [&](const char* tree, const char* id) {
    const CallerJobs callers{
        CgroupProof(fmt::format("32 31 0:29 / {}/{} rw - cgroup2 cgroup2 rw\n", scratch_.path(), tree))};
    return callers.proof_of({1001, 1001, 0}, id);
  };
  EXPECT_EQ(proof_of("slurm", "4711"), SlurmProof::kMissing);
  EXPECT_EQ(proof_of("slurm", "name"), SlurmProof::kNotNeeded);
  EXPECT_EQ(proof_of("other", "4711"), SlurmProof::kNotNeeded);
}

TEST_F(CgroupProofTest, AMissingOrUnrelatedDirectoryProvesNothing) {
  for (const char* directory : {"v2/job_1", "v2/job_1x", "v2/job_", "v2/myjob_1"}) make(directory);
  for (const char* directory : {"v1/job_3", "part/job_13", "part/y/job_13"}) make(directory);
  EXPECT_EQ(job_of("0::/job_2\n"), "");
  EXPECT_EQ(job_of("4:cpu,cpuacct:/job_1\n"), "");
  EXPECT_EQ(job_of("4:cpu,blkio:/job_3\n"), "");
  EXPECT_EQ(job_of("4:cpu:/job_1\n"), "");
  EXPECT_EQ(job_of("4:memory:/docker/xy/job_13\n"), "");
  EXPECT_EQ(job_of("4:memory:/job_13\n"), "");
  EXPECT_EQ(job_of("0::/../v2/job_1\n"), "");
  EXPECT_EQ(job_of("0::/job_1x\n0::/job_\n0::/myjob_1\n"), "");
  EXPECT_EQ(job_of("no lines of this kind\n::\n"), "");
}

TEST_F(CgroupProofTest, ADirectoryThatAUserOwnsOrMayWriteToProvesNothing) {
  make("v2/job_1", 20001);
  make("v2/user.slice", 20001);
  make("v2/user.slice/job_2");
  make("v2/user.slice/job_2/job_3");
  make("v2/open/job_4");
  std::filesystem::permissions(scratch_ / "v2/open", std::filesystem::perms::group_write,
                               std::filesystem::perm_options::add);
  EXPECT_EQ(job_of("0::/job_1\n"), "");
  EXPECT_EQ(job_of("0::/user.slice/job_2/job_3\n"), "");
  EXPECT_EQ(job_of("0::/open/job_4\n"), "");
  make("v1/job_5");
  ASSERT_EQ(job_of("4:cpu,cpuacct:/job_5\n"), "5");
  make("v1", 20001);
  EXPECT_EQ(job_of("4:cpu,cpuacct:/job_5\n"), "");
}

TEST_F(CgroupProofTest, TheOutermostJobCounts) {
  make("v2/job_5");
  make("v2/job_5/job_6", 20001);
  EXPECT_EQ(job_of("0::/job_5/job_6\n"), "5");
}

}  // namespace
}  // namespace cacheshim
