// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job_rights.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

constexpr uid_t kOwner = 1001, kOther = 1002;

class JobRightsTest : public OverlayTest {
 protected:
  static Caller caller(uid_t uid) { return {uid, uid, 0}; }
  std::string job_of(uid_t uid, const std::string& id) const {
    return std::string(rights_.claim_of(caller(uid), id).job.view());
  }
  Job& use(uid_t uid, const std::string& id, bool shared_uids = false) {
    Job& job = **rights_.ensure_active(rights_.claim_of(caller(uid), id), limits_.account(uid), shared_uids);
    (void)job.views.enter(caller(uid));
    return job;
  }

  Job& begin_for(uid_t uid, JobClaim& claim) {
    return **rights_.begin_for(uid, claim, limits_.account(0), false);
  }

  UserLimits limits_{{}};
  NodeTable nodes_;
  const Store store_ = Store::bare(scratch_.open_dir("base"));
  JobTable jobs_{store_,
                 entries_,
                 counters_,
                 nodes_,
                 nodes_.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir),
                 PublishPolicy::kNever,
                 {}};
  CallerJobs callers_{CgroupProof("")};
  JobRights rights_{jobs_, callers_};
};

TEST_F(JobRightsTest, TheFirstUserKeepsTheIdAndTheSecondGetsItsOwnJob) {
  EXPECT_EQ(job_of(kOther, "4711"), "4711");
  EXPECT_EQ(use(kOther, "4711").id, "4711");
  EXPECT_EQ(job_of(kOther, "4711"), "4711");
  EXPECT_EQ(job_of(kOwner, "4711"), "uid-1001.4711");
  const JobClaim claim = rights_.claim_of(caller(kOwner), "4711");
  EXPECT_EQ(claim.named.view(), "4711");
  EXPECT_EQ(rights_.reason(claim), "job '4711' belongs to uid 1002");
  EXPECT_EQ(use(kOwner, "4711").views.owner(), kOwner);
}

TEST_F(JobRightsTest, AnEndedJobStillBelongsToItsUser) {
  (void)use(kOther, "4711").finish(Outcome::kSuccess);
  EXPECT_EQ(job_of(kOwner, "4711"), "uid-1001.4711");
}

TEST_F(JobRightsTest, ASharedJobAdmitsUsersWhoShareItOrWhomRootAdmits) {
  (void)use(kOther, "4711", true);
  EXPECT_EQ(rights_.claim_of(caller(kOwner), "4711", /*shares=*/true).job.view(), "4711");
  EXPECT_EQ(job_of(kOwner, "4711"), "uid-1001.4711");
  (void)use(0, "4712", true);
  (void)use(kOther, "4712");
  EXPECT_EQ(job_of(kOwner, "4712"), "4712");
}

TEST_F(JobRightsTest, RootNamesTheUserOfAJob) {
  JobClaim claim = rights_.claim_for(kOwner, "4711");
  Job& job = begin_for(kOwner, claim);
  EXPECT_EQ(job.id, "4711");
  EXPECT_EQ(job.views.owner(), kOwner);
  EXPECT_EQ(job_of(kOther, "4711"), "uid-1002.4711");
  EXPECT_EQ(job_of(kOwner, "4711"), "4711");
  EXPECT_EQ(job_of(0, "4711"), "4711");
}

TEST_F(JobRightsTest, RootNamesTheUserOfAJobThatAnotherUserHas) {
  (void)use(kOther, "4711");
  JobClaim claim = rights_.claim_for(kOwner, "4711");
  EXPECT_EQ(begin_for(kOwner, claim).id, "uid-1001.4711");
  EXPECT_FALSE(rights_.reason(claim).empty());
}

TEST_F(JobRightsTest, AnotherUserMayEnterWhileRootNamesTheUser) {
  JobClaim claim = rights_.claim_for(kOwner, "4711");
  (void)use(kOther, "4711");
  EXPECT_EQ(begin_for(kOwner, claim).id, "uid-1001.4711");
}

TEST_F(JobRightsTest, AnIdOfAUserIsTheUsersFromTheStart) {
  for (const char* id : {"uid-1001", "uid-1001.4711"}) {
    EXPECT_EQ((*jobs_.ensure_active(id, {}, limits_.account(0)))->views.owner(), kOwner);
    EXPECT_TRUE(jobs_.find(id)->views.is_closed_to(kOther));
  }
}

TEST_F(JobRightsTest, ATruncatedIdIsStillTheUsers) {
  const std::string id(kMaxJobId, 'x');
  (void)use(kOther, id);
  const std::string own = job_of(kOwner, id);
  EXPECT_EQ(own.size(), kMaxJobId);
  EXPECT_EQ(owner_of_id(own), kOwner);
}

}  // namespace
}  // namespace cacheshim
