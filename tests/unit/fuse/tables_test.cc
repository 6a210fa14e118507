// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <random>
#include <vector>

#include "fuse/nodes/arena.h"
#include "fuse/nodes/name_index.h"
#include "fuse/nodes/open_files.h"
#include "fuse/services/freshness/generations.h"
#include "fuse/services/single_flight/failed_builds.h"

namespace cacheshim {
namespace {

TEST(FailedBuilds, ForgetsAPathAndTheNamesBelowIt) {
  const FailedBuilds::Time now{};
  FailedBuilds failed;
  for (const char* path : {"triton/A", "triton/A/x", "triton/AB"}) {
    failed.add(path, now + std::chrono::seconds(1));
  }
  failed.forget("triton/A");
  EXPECT_FALSE(failed.has("triton/A", now) || failed.has("triton/A/x", now));
  EXPECT_TRUE(failed.has("triton/AB", now));
}

TEST(OpenFiles, LeadsToAnOpenDescriptorWhicheverAreClosed) {
  OpenFiles files;
  const int first = ::open("/", O_RDONLY);
  const int second = ::open("/dev/null", O_RDONLY);
  const auto first_place = files.add(7, first);
  const auto second_place = files.add(7, second);
  EXPECT_TRUE(S_ISCHR(files.stat(7)->st_mode));
  files.remove(7, second_place);
  EXPECT_TRUE(S_ISDIR(files.stat(7)->st_mode));
  files.remove(7, first_place);
  EXPECT_FALSE(files.has(7));
  EXPECT_TRUE(files.stat(7).failed_with(ESTALE));
  ::close(first);
  ::close(second);
}

TEST(NameIndex, FindsElementsWithEqualHashes) {
  NameIndex index;
  const std::uint64_t hash = 5ULL << 32;
  index.insert(hash, 1);
  index.insert(hash, 2);
  EXPECT_EQ(index.find(hash, [](std::uint32_t number) { return number == 2; }), 2U);
  index.erase(hash, 1);
  EXPECT_EQ(index.find(hash, [](std::uint32_t number) { return number == 1; }), 0U);
  EXPECT_EQ(index.find(hash, [](std::uint32_t number) { return number == 2; }), 2U);
}

TEST(NameIndex, AgreesWithAMapWhileItGrowsAndShrinks) {
  std::mt19937 random(7);
  NameIndex index;
  std::map<std::uint32_t, std::uint64_t> hashes;  // number → hash
  std::uint32_t next = 1;
  for (const unsigned share_of_removals : {2U, 8U, 2U, 9U}) {  // removals per ten operations
    for (int step = 0; step < 20000; ++step) {
      if (random() % 10 >= share_of_removals || hashes.empty()) {
        // With only 5000 possible values, many hashes are equal.
        const std::uint64_t hash = std::uint64_t{random() % 5000} << 32;
        index.insert(hash, next);
        hashes[next++] = hash;
      } else {
        auto some = hashes.lower_bound(static_cast<std::uint32_t>(random() % next));
        if (some == hashes.end()) some = hashes.begin();
        index.erase(some->second, some->first);
        hashes.erase(some);
      }
    }
    for (const auto& entry : hashes) {
      const std::uint32_t number = entry.first;
      ASSERT_EQ(index.find(entry.second, [&](std::uint32_t found) { return found == number; }),
                number);
    }
  }
}

TEST(Arena, GivesSlotsOutAgainEmptyAndKeepsTheOthers) {
  constexpr std::uint32_t kMany = 20000;  // uses several chunks
  Arena<std::vector<int>> arena;
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    indices.push_back(arena.allocate());
    arena.get(indices.back()).assign(1, static_cast<int>(i));
  }
  for (std::uint32_t i = 0; i < kMany; ++i) {
    if (i % 5000 != 0) arena.release(indices[i]);
  }
  EXPECT_EQ(arena.in_use(), kMany / 5000);
  for (std::uint32_t i = 0; i < kMany; i += 5000) {
    EXPECT_EQ(arena.get(indices[i]), std::vector<int>{static_cast<int>(i)});
    arena.release(indices[i]);
  }
  for (std::uint32_t i = 0; i < kMany; ++i) EXPECT_TRUE(arena.get(arena.allocate()).empty());
  EXPECT_EQ(arena.in_use(), kMany);
}

TEST(Generations, DetectAChangeOfThisDirectoryAndOfAll) {
  Generations generations;
  const auto before = generations.of("a/b");
  generations.change("a/b");
  const auto after = generations.of("a/b");
  EXPECT_NE(before, after);
  generations.change_all();
  EXPECT_NE(generations.of("a/b"), after);
}

}  // namespace
}  // namespace cacheshim
