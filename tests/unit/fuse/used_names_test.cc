// SPDX-License-Identifier: Apache-2.0
#include "common/used_names.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/direct_page.h"
#include "common/unique_fd.h"
#include "fuse/jobs/view_filter.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

class UsedNamesTest : public ::testing::Test {
 protected:
  UsedNamesTest() { filter_.open(::geteuid(), ::getegid()); }
  ~UsedNamesTest() override {
    if (data_ != MAP_FAILED) ::munmap(data_, kMapped);
  }
  // Maps the filter's current file, as a process of the job does.
  FilterView map_filter() {
    const UniqueFd fd(::open((scratch_ / "views/j").c_str(), O_RDONLY));
    data_ = ::mmap(nullptr, kMapped, PROT_READ, MAP_SHARED, fd.get(), 0);
    return data_ == MAP_FAILED ? FilterView() : FilterView::over(data_, kMapped);
  }

  static constexpr std::size_t kMapped = 2048 + sizeof(FilterHeader);  // the size of a new filter
  void* data_ = MAP_FAILED;
  Scratch scratch_;
  std::vector<Profile> profiles_ = test_profiles();
  DirectAccess directories_{scratch_.open_dir("views"), scratch_.open_dir("counters"), profiles_};
  ViewFilter filter_{"j", &directories_};
};

// Marks names as the job's processes do.
void mark_as_process(const std::string& counters, std::string_view path) {
  const UniqueFd fd(::open(counters.c_str(), O_RDWR));
  std::vector<std::uint64_t> words(kUsedWords);
  ASSERT_EQ(::pread(fd.get(), words.data(), kUsedBytes, kCountersBytes), ssize_t{kUsedBytes});
  mark_used(words.data(), path);
  ASSERT_EQ(::pwrite(fd.get(), words.data(), kUsedBytes, kCountersBytes), ssize_t{kUsedBytes});
}

TEST_F(UsedNamesTest, RecordsTheNamesThatTheDaemonAndTheProcessesUse) {
  const std::string counters = scratch_ / "counters/j";
  EXPECT_EQ(std::filesystem::file_size(counters), kCountersBytes);
  filter_.note_use("fam/early/x");
  EXPECT_EQ(filter_.take_uses().size(), 0U);
  const FilterView before = map_filter();
  filter_.record_uses();
  EXPECT_TRUE(before.is_retired());  // so the processes also map the counters again
  filter_.note_use("fam/K/x");
  mark_as_process(counters, "fam/L/deep/y");
  const auto used = filter_.take_uses();
  ASSERT_EQ(used.size(), kUsedWords);
  for (const char* path : {"fam/K", "fam/K/x", "fam/L", "fam/L/deep", "fam/L/deep/y"})
    EXPECT_TRUE(is_marked_used(used.data(), path)) << path;
  for (const char* path : {"fam", "fam/early", "fam/M", "fam/K/y", "L/deep", "deep"})
    EXPECT_FALSE(is_marked_used(used.data(), path)) << path;
  EXPECT_EQ(filter_.take_uses().size(), 0U);
}

TEST_F(UsedNamesTest, EachRecordingBeginsWithNoName) {
  filter_.record_uses();
  filter_.note_use("fam/K");
  filter_.close();
  filter_.open(::geteuid(), ::getegid());
  filter_.record_uses();
  filter_.note_use("fam/L");
  const auto used = filter_.take_uses();
  EXPECT_FALSE(is_marked_used(used.data(), "fam/K"));
  EXPECT_TRUE(is_marked_used(used.data(), "fam/L"));
}

// The job's user can truncate the file in which processes record their names. The daemon keeps the names that it has
// recorded itself.
TEST_F(UsedNamesTest, TruncationKeepsTheNamesThatTheDaemonRecorded) {
  filter_.record_uses();
  filter_.note_use("fam/K");
  ASSERT_EQ(::truncate((scratch_ / "counters/j").c_str(), kCountersBytes), 0);
  EXPECT_TRUE(is_marked_used(filter_.take_uses().data(), "fam/K"));
}

TEST_F(UsedNamesTest, FewNamesThatWereNotUsedSeemUsed) {
  filter_.record_uses();
  constexpr int kNames = 1000;
  const auto name = [](int i) { return "fam/K" + std::to_string(i); };
  for (int i = 0; i < kNames; ++i) filter_.note_use(name(i) + "/kernel.json");
  const auto used = filter_.take_uses();
  int falsely = 0;
  for (int i = 0; i < 200 * kNames; ++i)
    falsely += is_marked_used(used.data(), name(i)) && i >= kNames;
  EXPECT_LT(falsely, 200 * kNames / 2000);
}

}  // namespace
}  // namespace cacheshim
