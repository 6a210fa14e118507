// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "store/sys/copy_file.h"
#include "store/sys/digest.h"
#include "store/sys/sys.h"
#include "store/threads/idle_policy.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

constexpr off_t kKiB = 1024;
constexpr off_t kGiB = off_t{1} << 30;

struct Piece {
  off_t at;
  std::string bytes;
};

class SparseFiles : public ::testing::Test {
 protected:
  UniqueFd make(const std::string& name) {
    return UniqueFd(
        ::open((scratch_ / name).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  }
  // Makes a file of `size` bytes with data only at `pieces`.
  UniqueFd make_sparse(const std::string& name, off_t size, const std::vector<Piece>& pieces) {
    UniqueFd fd = make(name);
    EXPECT_EQ(::ftruncate(fd.get(), size), 0);
    for (const Piece& piece : pieces) {
      EXPECT_EQ(::pwrite(fd.get(), piece.bytes.data(), piece.bytes.size(), piece.at),
                static_cast<ssize_t>(piece.bytes.size()));
    }
    return fd;
  }
  // Like make_sparse(), but writes all bytes, so that the file has no holes.
  UniqueFd make_dense(const std::string& name, off_t size, const std::vector<Piece>& pieces) {
    std::string bytes(static_cast<std::size_t>(size), '\0');
    for (const Piece& piece : pieces) {
      bytes.replace(static_cast<std::size_t>(piece.at), piece.bytes.size(), piece.bytes);
    }
    return make_sparse(name, size, {{0, bytes}});
  }
  static bool has_holes(int fd) {
    const auto st = sys::stat_fd(fd);
    return st && st->st_blocks * 512 < st->st_size;
  }
  static std::string digest(int fd) {
    const auto digest = digest_of(fd);
    return digest ? *digest : "errno " + std::to_string(digest.error().code());
  }
  static bool are_equal(int left, int right) {
    const auto equal = have_equal_content(left, right);
    return equal && *equal;
  }

  Scratch scratch_;
};

TEST_F(SparseFiles, DigestEqualsTheDigestOfTheSameBytesWithoutHoles) {
  std::mt19937 random(22);  // the same files in each run
  for (int run = 0; run < 200; ++run) {
    const off_t size = static_cast<off_t>(random() % (run % 2 == 0 ? 600'000 : 9'000));
    std::vector<Piece> pieces;
    for (unsigned count = random() % 4; count > 0 && size > 0; --count) {
      const off_t at = static_cast<off_t>(random() % static_cast<unsigned>(size));
      const auto most = std::min<off_t>(size - at, 20'000);
      pieces.push_back({at, std::string(1 + random() % static_cast<unsigned>(most), 'x')});
    }
    const UniqueFd sparse = make_sparse("sparse", size, pieces);
    const UniqueFd dense = make_dense("dense", size, pieces);
    ASSERT_EQ(digest(sparse.get()), digest(dense.get())) << "run " << run << ", size " << size;
    ASSERT_TRUE(are_equal(sparse.get(), dense.get())) << "run " << run << ", size " << size;
  }
}

// Digests of zeros, computed by XXH3_128bits_update() of libxxhash 0.8.1, which reads every byte.
TEST_F(SparseFiles, DigestOfZerosEqualsTheDigestByLibxxhash) {
  const std::vector<std::pair<off_t, std::string>> kKnown = {
      {0, "99aa06d3014798d86001c324468d497f"},
      {1, "a6cd5e9392000f6ac44bdff4074eecdb"},
      {240, "0550e1dd88b6c17ca499f0a80fd3850a"},
      {241, "b9b45065a364c5b95c5b5d5d40c59ce3"},
      {1024, "0717191e67688313de5f15ab6daf7941"},
      {1025, "29e523d2db09ee9d64ace6654784c523"},
      {2049, "58b94e5b27f3e8fb158639a5cfb9f367"},
      {3136, "bd79160873b81dc8c60d38b07176bf61"},
      {1048831, "7b853928517702f1ee106df1fb46fd6a"},
      {1073741824, "16024760318c6298efd1151033ad2e9f"},
      {10737418240, "f50e1be7dfc4d19a9eaacea1efd9ecc2"},
  };
  for (const auto& [size, expected] : kKnown) {
    EXPECT_EQ(digest(make_sparse("zeros", size, {}).get()), expected) << size;
  }
}

TEST_F(SparseFiles, ADigestReadsNoHole) {
  const UniqueFd fd = make_sparse("hole", kGiB, {{kGiB / 2, "x"}});
  ASSERT_TRUE(digest_of(fd.get()));
  void* const mapped = ::mmap(nullptr, kGiB, PROT_READ, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::vector<unsigned char> pages(static_cast<std::size_t>(kGiB / 4096));
  ASSERT_EQ(::mincore(mapped, kGiB, pages.data()), 0);
  const auto cached = std::count_if(pages.begin(), pages.end(), [](auto page) { return page & 1; });
  ::munmap(mapped, kGiB);
  EXPECT_LE(cached, 64);  // the written page, and the pages that the kernel reads ahead
}

TEST_F(SparseFiles, AFileOfMoreThanTheMaximumHasNoDigest) {
  const UniqueFd fd = make("huge");
  if (::ftruncate(fd.get(), kMostDigestBytes + 1) != 0)
    GTEST_SKIP() << "no files of this size here";
  EXPECT_TRUE(digest_of(fd.get()).failed_with(EOVERFLOW));
}

TEST_F(SparseFiles, ADigestStopsWhenItIsNoLongerWanted) {
  int checks = 0;
  const IsWanted for_two_slices = [&] { return ++checks <= 2; };
  EXPECT_TRUE(
      digest_of(make_sparse("h", 8 * kGiB, {}).get(), for_two_slices).failed_with(ECANCELED));
  EXPECT_EQ(checks, 3);
  checks = 0;
  const UniqueFd data = make_dense("d", 1024 * kKiB, {});
  EXPECT_TRUE(digest_of(data.get(), for_two_slices).failed_with(ECANCELED));
  EXPECT_EQ(checks, 3);
  const UniqueFd other = make_dense("e", 1024 * kKiB, {});
  checks = 0;
  EXPECT_TRUE(have_equal_content(data.get(), other.get(), for_two_slices).failed_with(ECANCELED));
}

TEST_F(SparseFiles, LargeHolesTakeOnlyIdleTime) {
  if (!may_leave_idle_policy()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  const auto policies_for = [this](off_t size) {
    std::set<int> seen;
    const auto check = [&] { return seen.insert(::sched_getscheduler(0)), true; };
    EXPECT_TRUE(digest_of(make_sparse("hole", size, {{0, "data"}}).get(), check));
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    return seen;
  };
  EXPECT_EQ(policies_for(1024 * kKiB), std::set{SCHED_OTHER});
  EXPECT_EQ(policies_for(kGiB), (std::set{SCHED_OTHER, SCHED_IDLE}));  // for the data, then for the hole
}

TEST_F(SparseFiles, LargeHolesLetOtherIdleThreadsTakeTurns) {
  if (!may_leave_idle_policy()) GTEST_SKIP() << "needs CAP_SYS_NICE";
  const UniqueFd fd = make_sparse("hole", 8 * kGiB, {});
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &core);
  std::atomic<bool> is_hashing{false};
  std::atomic<bool> has_ended{false};
  unsigned turns = 0;
  std::thread other([&] {
    ASSERT_EQ(::sched_setaffinity(0, sizeof core, &core), 0);
    ASSERT_TRUE(set_policy(0, SCHED_IDLE));
    while (!has_ended) {
      if (is_hashing) ++turns;
      (void)::sched_yield();
    }
  });
  std::thread hashing([&] {
    EXPECT_EQ(::sched_setaffinity(0, sizeof core, &core), 0);
    is_hashing = true;
    EXPECT_TRUE(digest_of(fd.get()));
    is_hashing = false;
    has_ended = true;
  });
  hashing.join();
  other.join();
  EXPECT_GE(turns, 100U);  // the hole has 512 pieces; about 30 turns if the digest kept the core for whole time slices
}

TEST_F(SparseFiles, FilesThatDifferInOneByteAreNotEqual) {
  const off_t size = 3000 * kKiB;
  for (const off_t at : {off_t{0}, 1000 * kKiB, 1001 * kKiB + 7, size - 1}) {
    const std::vector<Piece> pieces = {{1000 * kKiB, "data"}};
    const UniqueFd sparse = make_sparse("sparse", size, pieces);
    const UniqueFd other = make_sparse("other", size, {{1000 * kKiB, "data"}, {at, "y"}});
    const UniqueFd dense = make_dense("dense", size, {{1000 * kKiB, "data"}, {at, "y"}});
    EXPECT_FALSE(are_equal(sparse.get(), other.get())) << at;
    EXPECT_FALSE(are_equal(other.get(), sparse.get())) << at;
    EXPECT_FALSE(are_equal(sparse.get(), dense.get())) << at;
    EXPECT_TRUE(are_equal(other.get(), dense.get())) << at;
  }
}

TEST_F(SparseFiles, HolesThatBothFilesHaveAreNotCompared) {
  int slices = 0;
  const UniqueFd left = make_sparse("left", 512 * kGiB, {{256 * kGiB, "x"}});
  const UniqueFd right = make_sparse("right", 512 * kGiB, {{256 * kGiB, "x"}});
  const auto equal = have_equal_content(left.get(), right.get(), [&] { return ++slices > 0; });
  EXPECT_TRUE(equal && *equal);
  EXPECT_LE(slices, 8);
}

TEST_F(SparseFiles, ACopyHasTheHolesOfItsSource) {
  const off_t size = 64 * kGiB;
  const UniqueFd source = make_sparse("source", size, {{0, "a"}, {40 * kGiB, "b"}});
  const UniqueFd target = make("target");
  ASSERT_TRUE(copy_file(source.get(), target.get()));
  EXPECT_TRUE(has_holes(target.get()));
  EXPECT_TRUE(are_equal(source.get(), target.get()));
}

// The copy must have holes even if the source has blocks that are allocated beyond the end of the file.
TEST_F(SparseFiles, ACopyOfAFileWithSpaceBeyondItsEndHasHoles) {
  const off_t size = 4 * 1024 * kKiB;
  const UniqueFd source = make_sparse("source", size, {{0, "a"}});
  if (::fallocate(source.get(), FALLOC_FL_KEEP_SIZE, size, size) != 0) {
    GTEST_SKIP() << "the file system cannot reserve space";
  }
  const UniqueFd target = make("target");
  ASSERT_TRUE(copy_file(source.get(), target.get()));
  EXPECT_TRUE(has_holes(target.get()));
  EXPECT_TRUE(are_equal(source.get(), target.get()));
}

}  // namespace
}  // namespace cacheshim
