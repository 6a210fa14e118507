// SPDX-License-Identifier: Apache-2.0
#include "store/base/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include "store/sys/sys.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

using std::chrono::hours;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() { scratch_.write("store/triton/KEY/kernel.cubin", ""); }
  std::variant<Store, StoreError> open() const { return Store::open(scratch_ / "store", ""); }

  Scratch scratch_;
};

TEST_F(StoreTest, ManyDaemonsOpenAStoreAtTheSameTime) {
  constexpr std::size_t kDaemons = 64;
  std::mutex mutex;
  std::vector<Store> stores;
  std::set<ino_t> staging;
  {
    std::vector<std::jthread> daemons;
    for (std::size_t i = 0; i < kDaemons; ++i) {
      daemons.emplace_back([&] {
        auto opened = open();
        const std::lock_guard lock(mutex);
        const auto* const error = std::get_if<StoreError>(&opened);
        ASSERT_EQ(error, nullptr) << error->message;
        stores.push_back(std::get<Store>(std::move(opened)));
        staging.insert(sys::stat_fd(stores.back().staging())->st_ino);
      });
    }
  }
  EXPECT_EQ(staging.size(), kDaemons);
}

TEST_F(StoreTest, TheStagingOfDeadDaemonsIsRemoved) {
  { const auto dead = open(); }
  scratch_.write("store/.cacheshim/staging/dead/owner.lock", "");
  const auto alive = open();
  EXPECT_FALSE(std::get<Store>(alive).has_other_daemons());
  EXPECT_FALSE(scratch_.exists("store/.cacheshim/staging/dead"));
  EXPECT_TRUE(std::get<Store>(open()).has_other_daemons());
}

TEST_F(StoreTest, AnEvictionRoundIsRecorded) {
  const auto opened = open();
  const auto& store = std::get<Store>(opened);
  EXPECT_FALSE(store.has_evicted_within(hours(1)));
  auto lock = store.try_lock_base();
  ASSERT_TRUE(lock);
  EXPECT_FALSE(store.has_evicted_within(hours(1)));
  Store::note_eviction(*lock);
  EXPECT_TRUE(store.has_evicted_within(hours(1)));
  const timespec long_ago{.tv_sec = ::time(nullptr) - 7200, .tv_nsec = 0};
  const timespec times[] = {long_ago, long_ago};
  ASSERT_EQ(::futimens(lock->get(), times), 0);
  EXPECT_FALSE(store.has_evicted_within(hours(1)));
  EXPECT_TRUE(store.has_evicted_within(hours(3)));
}

}  // namespace
}  // namespace cacheshim
