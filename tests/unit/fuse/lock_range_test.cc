// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_range.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace cacheshim {
namespace {

constexpr std::size_t kBytes = 40;

// The type of the lock on each byte.
struct ModelRanges {
  std::array<short, kBytes> types;
  ModelRanges() { types.fill(F_UNLCK); }

  void set(const LockRange& range) {
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      if (covers(range.bytes, byte)) types[byte] = range.type;
    }
  }
  static bool covers(Interval bytes, std::size_t byte) {
    return bytes.start <= static_cast<off_t>(byte) && static_cast<off_t>(byte) < bytes.end;
  }
  bool conflicts_with(const LockRange& request) const {
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      if (!covers(request.bytes, byte) || types[byte] == F_UNLCK) continue;
      if (types[byte] == F_WRLCK || request.type == F_WRLCK) return true;
    }
    return false;
  }
  std::size_t size() const {
    std::size_t count = 0;
    short before = F_UNLCK;
    for (const short type : types) {
      if (type != before && type != F_UNLCK) ++count;
      before = type;
    }
    return count;
  }
  bool has_exclusive_within(Interval bytes) const {
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      if (types[byte] != F_WRLCK || (byte > 0 && types[byte - 1] == F_WRLCK)) continue;
      std::size_t end = byte;
      while (end < kBytes && types[end] == F_WRLCK) ++end;
      if (covers(bytes, byte) && covers(bytes, end - 1)) return true;
    }
    return false;
  }
};

// Runs 20,000 random requests, the same ones in each run.
TEST(LockRanges, AgreeWithALockOfEachByte) {
  std::mt19937 random(7);  // NOLINT
  const auto below = [&](std::size_t end) { return static_cast<off_t>(random() % end); };
  LockRanges ranges;
  ModelRanges model;
  for (int turn = 0; turn < 20'000; ++turn) {
    constexpr std::array<short, 3> kTypes{F_RDLCK, F_WRLCK, F_UNLCK};
    LockRange range{true, kTypes[random() % 3], {below(kBytes), 0}};
    range.bytes.end = range.bytes.start + 1 + below(kBytes - static_cast<std::size_t>(range.bytes.start));
    if (range.type != F_UNLCK) {
      ASSERT_EQ(ranges.conflicts_with(range), model.conflicts_with(range)) << turn;
    }
    ASSERT_EQ(ranges.has_exclusive_within(range.bytes), model.has_exclusive_within(range.bytes)) << turn;
    const std::size_t most = ranges.size() + ranges.most_added(range);
    ranges.set(range);
    model.set(range);
    ASSERT_EQ(ranges.size(), model.size()) << turn;
    ASSERT_LE(ranges.size(), most) << turn;
    ASSERT_EQ(ranges.empty(), model.size() == 0) << turn;
  }
}

TEST(LockRanges, AnUnlockAddsARangeOnlyIfItSplitsOne) {
  LockRanges ranges;
  ranges.set({true, F_WRLCK, {0, 10}});
  EXPECT_EQ(ranges.most_added({true, F_UNLCK, {5, 6}}), 1U);
  EXPECT_EQ(ranges.most_added({true, F_UNLCK, {0, 6}}), 0U);
  EXPECT_EQ(ranges.most_added({true, F_UNLCK, {}}), 0U);
  EXPECT_EQ(ranges.most_added({true, F_RDLCK, {5, 6}}), 2U);
}

TEST(LockRanges, AddedLocksOfSeveralOwnersAllCount) {
  LockRanges ranges;
  ranges.add({true, F_WRLCK, {0, 10}});
  ranges.add({true, F_RDLCK, {0, 20}});
  EXPECT_TRUE(ranges.conflicts_with({true, F_RDLCK, {5, 6}}));
  EXPECT_FALSE(ranges.conflicts_with({true, F_RDLCK, {15, 16}}));
  EXPECT_TRUE(ranges.conflicts_with({true, F_WRLCK, {15, 16}}));
}

TEST(LockRanges, ALockToTheEndOfTheFileHasNoEnd) {
  LockRequest request;
  request.is_record = true;
  request.type = F_WRLCK;
  request.start = 5;
  EXPECT_EQ(range_of(request).bytes.end, Interval::kEndOfFile);
  request.length = 3;
  EXPECT_EQ(range_of(request).bytes.end, 8);
}

}  // namespace
}  // namespace cacheshim
