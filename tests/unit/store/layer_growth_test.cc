// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "store/overlay/copy_up.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

// Permits a limited number of new names and bytes, and counts the names and bytes that the overlay requests.
class Growth final : public OverlayObserver {
 public:
  void copied_up(const std::string&, const struct stat&) override {}
  Status grow(std::uint64_t bytes, std::uint64_t names) override {
    asked_bytes += bytes;
    asked_names += names;
    return asked_bytes > most_bytes || asked_names > most_names ? Status(Errno(EDQUOT)) : Status();
  }
  std::uint64_t asked_bytes = 0, asked_names = 0;
  std::uint64_t most_bytes = 1 << 30, most_names = 1000;
};

class LayerGrowthTest : public OverlayTest {
 protected:
  LayerGrowthTest() { take_up_layer(limited_); }

  Growth growth_;
  Overlay limited_{{base_.get()}, entries_, counters_, &growth_};
};

TEST_F(LayerGrowthTest, EveryNewNameCounts) {
  ASSERT_TRUE(changes::make_dir(limited_, "d", 0755));
  ASSERT_TRUE(changes::create_file(limited_, "d/f", O_WRONLY, 0644));
  ASSERT_TRUE(changes::make_symlink(limited_, "d/s", "f"));
  ASSERT_TRUE(changes::make_node(limited_, "d/p", {S_IFIFO | 0644, 0, std::nullopt}));
  ASSERT_TRUE(changes::link(limited_, "d/f", "d/l"));
  ASSERT_TRUE(changes::make_tmpfile(limited_, "d", O_RDWR, 0644));
  EXPECT_EQ(growth_.asked_names, 6U);
  EXPECT_EQ(growth_.asked_bytes, 0U);
}

TEST_F(LayerGrowthTest, ARefusedNameIsNotCreated) {
  growth_.most_names = 0;
  EXPECT_TRUE(changes::make_dir(limited_, "d", 0755).failed_with(EDQUOT));
  EXPECT_TRUE(changes::create_file(limited_, "f", O_WRONLY, 0644).failed_with(EDQUOT));
  EXPECT_TRUE(changes::make_symlink(limited_, "s", "f").failed_with(EDQUOT));
  EXPECT_TRUE(changes::make_tmpfile(limited_, "", O_RDWR, 0644).failed_with(EDQUOT));
  EXPECT_TRUE(limited_.list("")->empty());
}

TEST_F(LayerGrowthTest, ACopyUpCountsTheBytesThatItCopies) {
  scratch_.write("base/d/f", std::string(10'000, 'x'));
  ASSERT_TRUE(open_writable(limited_, "d/f", O_WRONLY));
  EXPECT_EQ(growth_.asked_names, 2U);  // the file and its directory
  EXPECT_EQ(growth_.asked_bytes, 10'000U);
}

TEST_F(LayerGrowthTest, ARefusedCopyUpLeavesTheBaseVisible) {
  scratch_.write("base/d/f", std::string(10'000, 'x'));
  growth_.most_bytes = 9'999;
  EXPECT_TRUE(open_writable(limited_, "d/f", O_WRONLY).failed_with(EDQUOT));
  const auto found = limited_.find("d/f");
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->in_upper);
  EXPECT_EQ(found->st.st_size, 10'000);
}

TEST_F(LayerGrowthTest, RemovalsNeedNoPermission) {
  scratch_.write("base/f", "x");
  growth_.most_names = 0;
  EXPECT_TRUE(changes::remove_file(limited_, "f"));
  EXPECT_TRUE(limited_.find("f").failed_with(ENOENT));
}

}  // namespace
}  // namespace cacheshim
