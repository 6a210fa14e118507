// SPDX-License-Identifier: Apache-2.0
#include "fuse/limits/layer_use.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "store/sys/free_space.h"

namespace cacheshim {
namespace {

constexpr uid_t kLayerUser = 1000, kOtherUser = 1001, kRootUser = 0;
constexpr std::uint64_t kMiB = 1 << 20;

class LayerUseTest : public ::testing::Test {
 protected:
  static UserLimits::Options options() {
    UserLimits::Options made{.own_uid = 77};
    value_of(made.most, Limit::kLayerSize) = 100 * kMiB;
    value_of(made.most, Limit::kLayerFiles) = 10;
    return made;
  }
  std::uint64_t used(Limit limit) { return limits_.account(kLayerUser).used(limit); }

  FreeSpace::State free_{.available = 1000 * kMiB, .total = 2000 * kMiB};
  FreeSpace space_{0, {.measure = [this](int) { return free_; }, .now = FreeSpace::Clock::now}};
  UserLimits limits_{options()};
  int wakes_ = 0;
  LayerQuota quota_{limits_, space_, [this] { ++wakes_; }};
  LayerUse layer_{&quota_};
};

TEST_F(LayerUseTest, GrowthBeyondALimitFailsAndCountsNothing) {
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = 100 * kMiB, .files = 1}));
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = 1, .files = 1}).failed_with(EDQUOT));
  EXPECT_EQ(used(Limit::kLayerSize), 100 * kMiB);
  EXPECT_EQ(used(Limit::kLayerFiles), 1U);
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = 0, .files = 9}));
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = 0, .files = 1}).failed_with(EDQUOT));
}

TEST_F(LayerUseTest, AllLayersOfAUserShareTheLimit) {
  LayerUse second(&quota_);
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = 60 * kMiB, .files = 1}));
  EXPECT_TRUE(second.grow(kLayerUser, {.bytes = 60 * kMiB, .files = 1}).failed_with(EDQUOT));
  EXPECT_TRUE(second.grow(kOtherUser, {.bytes = 60 * kMiB, .files = 1}));
  layer_.clear();
  EXPECT_EQ(used(Limit::kLayerSize), 0U);
}

TEST_F(LayerUseTest, RootAndLayersWithoutQuotaAreNotLimited) {
  EXPECT_TRUE(layer_.grow(kRootUser, {.bytes = 900 * kMiB, .files = 100}));
  EXPECT_EQ(layer_.size().files, 0U);
  LayerUse plain(nullptr);
  EXPECT_TRUE(plain.grow(kLayerUser, {.bytes = 900 * kMiB, .files = 100}));
  EXPECT_FALSE(plain.is_due());
}

TEST_F(LayerUseTest, ANewOwnerIsChargedForTheWholeLayer) {
  EXPECT_TRUE(layer_.grow(kOtherUser, {.bytes = kMiB, .files = 1}));
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = kMiB, .files = 1}));
  EXPECT_EQ(limits_.account(kOtherUser).used(Limit::kLayerSize), 0U);
  EXPECT_EQ(used(Limit::kLayerSize), 2 * kMiB);
}

TEST_F(LayerUseTest, ALayerThatIsRemovedWhileItIsMeasuredIsNotCharged) {
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = kMiB, .files = 1}));
  layer_.begin_measuring();
  layer_.clear();
  EXPECT_TRUE(
      layer_.grow(kLayerUser, {.bytes = 10, .files = 1}));  // a file of the job's next layer
  layer_.end_measuring(kLayerUser, {.bytes = kMiB, .files = 1});
  EXPECT_EQ(layer_.size().bytes, 10U);
  EXPECT_EQ(used(Limit::kLayerSize), 10U);
}

TEST_F(LayerUseTest, IsDueNearALimitAndCorrectedByAMeasurement) {
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = 75 * kMiB, .files = 1}));
  EXPECT_FALSE(layer_.is_due());
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = kMiB, .files = 1}));
  EXPECT_TRUE(layer_.is_due());
  EXPECT_EQ(wakes_, 1);
  layer_.begin_measuring();
  EXPECT_TRUE(layer_.grow(kLayerUser,
                          {.bytes = kMiB, .files = 1}));  // the walk may have missed this growth
  layer_.end_measuring(kLayerUser, {.bytes = 10 * kMiB, .files = 2});
  EXPECT_EQ(layer_.size().bytes, 11 * kMiB);
  EXPECT_EQ(layer_.size().files, 3U);
  EXPECT_FALSE(layer_.is_due());
}

TEST_F(LayerUseTest, ALayerOfAnEarlierDaemonIsDue) {
  layer_.adopt();
  EXPECT_TRUE(layer_.is_due());
  layer_.begin_measuring();
  layer_.end_measuring(kLayerUser, {.bytes = 150 * kMiB, .files = 1});
  EXPECT_EQ(used(Limit::kLayerSize), 150 * kMiB);
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = 1, .files = 0}).failed_with(EDQUOT));
}

TEST_F(LayerUseTest, GrowthThatTheKernelHasWrittenIsCountedBeyondTheLimit) {
  EXPECT_FALSE(layer_.note_grown(kLayerUser, {.bytes = 100 * kMiB, .files = 0}));
  EXPECT_TRUE(layer_.note_grown(kLayerUser, {.bytes = 1, .files = 0}));
  EXPECT_TRUE(layer_.is_near_limit());
}

TEST_F(LayerUseTest, BlocksThatAreKeptForRootAreNotGiven) {
  free_.available = 0;
  EXPECT_TRUE(layer_.grow(kLayerUser, {.bytes = 1, .files = 0}).failed_with(ENOSPC));
  EXPECT_TRUE(layer_.grow(kRootUser, {.bytes = 0, .files = 1}).failed_with(ENOSPC));
  EXPECT_EQ(used(Limit::kLayerSize), 0U);
}

TEST_F(LayerUseTest, LayersOfAUserLeaveAsMuchSpaceFreeAsTheyTake) {
  constexpr std::uint64_t kGiB = 1 << 30;
  UserLimits::Options many{.own_uid = 77};
  value_of(many.most, Limit::kLayerSize) = 100 * kGiB;
  UserLimits limits(many);
  LayerQuota quota{limits, space_, [] {}};
  LayerUse layer(&quota);
  free_.available = 6 * kGiB;
  EXPECT_TRUE(layer.grow(kLayerUser, {.bytes = 4 * kGiB, .files = 1}));
  free_.available = 2 * kGiB;
  EXPECT_TRUE(layer.grow(kLayerUser, {.bytes = kGiB + 1, .files = 1}).failed_with(EDQUOT));
  EXPECT_TRUE(layer.is_due());
  LayerUse small(&quota);
  EXPECT_TRUE(small.grow(kOtherUser, {.bytes = kGiB, .files = 1}));
}

}  // namespace
}  // namespace cacheshim
