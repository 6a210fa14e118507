// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "fuse/jobs/job_table.h"
#include "store/base/store.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

constexpr uid_t kUser = 1001;
constexpr uid_t kOther = 1002;

class EndedJobsTest : public OverlayTest {
 protected:
  std::shared_ptr<Job> begin(const std::string& id, uid_t uid = kUser) {
    const auto job = *table_.ensure_active(id, {}, limits_.account(uid));
    (void)job->views.enter({uid, uid, 0});
    job->use.touch();
    return job;
  }
  void begin_and_end(const std::string& id, uid_t uid = kUser) { end(*begin(id, uid)); }
  static void end(Job& job) { job.finish(Outcome::kSuccess).give(); }
  void begin_and_end_many(const std::string& prefix, std::size_t count, uid_t uid = kUser) {
    for (std::size_t i = 0; i < count; ++i) begin_and_end(prefix + std::to_string(i), uid);
  }
  bool has(const std::string& id) const { return table_.find(id) != nullptr; }
  std::uint64_t charged(uid_t uid = kUser) { return limits_.account(uid).used(Limit::kJobs); }

  UserLimits limits_{{}};
  NodeTable nodes_;
  Store store_ = Store::bare(scratch_.open_dir("base"));
  NodeIndex jobs_dir_ = nodes_.intern_own(kRootNode, ".jobs", NodeKind::kJobsDir);
  JobTable table_{store_, entries_, counters_, nodes_, jobs_dir_, PublishPolicy::kNever, {}};
};

TEST_F(EndedJobsTest, OfAUserWithManyAreForgottenFromTheOldestOn) {
  begin_and_end_many("a", JobTable::kMostEnded + 3);
  begin_and_end_many("b", 5, kOther);
  const std::shared_ptr<Job> active = begin("active");
  EXPECT_TRUE(table_.forget_ended(limits_).empty());
  for (const char* forgotten : {"a0", "a1", "a2"}) EXPECT_FALSE(has(forgotten)) << forgotten;
  for (const char* kept : {"a3", "b0", "b4", "active"}) EXPECT_TRUE(has(kept)) << kept;
  EXPECT_EQ(table_.all().size(), JobTable::kMostEnded + 6);
  EXPECT_EQ(nodes_.names().find(jobs_dir_, "a0"), 0U);
}

TEST_F(EndedJobsTest, StayIfTheyWereUsedLately) {
  begin_and_end_many("a", JobTable::kMostEnded + 1);
  table_.find("a0")->use.touch();
  (void)table_.forget_ended(limits_);
  EXPECT_TRUE(has("a0"));
  EXPECT_FALSE(has("a1"));
}

TEST_F(EndedJobsTest, StayWhileTheyAreInUseAndCountAsActive) {
  begin_and_end_many("a", JobTable::kMostEnded + 3);
  const NodeIndex root = table_.find("a0")->view_root;
  nodes_.count_lookup(root);  // simulates a lookup by the kernel
  auto held = table_.find("a1");
  EXPECT_EQ(table_.forget_ended(limits_), (std::vector{table_.find("a0"), held}));
  EXPECT_FALSE(has("a2"));
  EXPECT_EQ(charged(), 0U);  // the kernel has not been asked to forget the nodes yet
  EXPECT_EQ(table_.forget_ended(limits_).size(), 2U);
  EXPECT_EQ(charged(), 2U);
  nodes_.forget(root, 1);
  held.reset();
  EXPECT_TRUE(table_.forget_ended(limits_).empty());
  EXPECT_FALSE(has("a0"));
  EXPECT_FALSE(has("a1"));
  EXPECT_EQ(charged(), 0U);
}

TEST_F(EndedJobsTest, AreChargedOnlyOnceWhenTheyBeginAgain) {
  begin_and_end_many("a", JobTable::kMostEnded + 1);
  const auto job = table_.find("a0");
  for (int pass = 0; pass < 2; ++pass) (void)table_.forget_ended(limits_);
  EXPECT_EQ(charged(), 1U);
  EXPECT_EQ(begin("a0"), job);
  EXPECT_EQ(charged(), 1U);
  end(*job);
  EXPECT_EQ(charged(), 0U);
}

TEST_F(EndedJobsTest, BeginAnewAfterTheyWereForgotten) {
  begin_and_end_many("a", JobTable::kMostEnded + 1);
  (void)table_.forget_ended(limits_);
  ASSERT_FALSE(has("a0"));
  const auto again = begin("a0", kOther);
  EXPECT_EQ(again->views.owner(), kOther);
  EXPECT_NE(again->view_root, 0U);
}

TEST_F(EndedJobsTest, AreReportedOnceThereAreMany) {
  int reports = 0;
  table_.set_on_many([&] { ++reports; });
  begin_and_end_many("a", JobTable::kMostEnded);
  EXPECT_EQ(reports, 0);
  begin_and_end("more");
  EXPECT_EQ(reports, 1);
}

}  // namespace
}  // namespace cacheshim
