// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/store/publisher_fixture.h"

namespace cacheshim {
namespace {

// Tests Publisher::adopt(), which adds to the base units that another machine has built.
class AdoptTest : public PublisherTest {
 protected:
  // Stages the file, whose path is `unit` + "/done-a", and adopts the unit.
  Result<bool> adopt(const std::string& unit, const std::string& content) {
    const std::string path = unit + "/done-a";
    scratch_.write("staged/" + path, content);
    const UniqueFd staged = scratch_.open_dir("staged");
    return publisher_->adopt(staged.get(), unit, {{path, content.size(), "digest"}},
                             {"remote", "", {}});
  }
  std::vector<AuditRecord> records() const {
    std::vector<AuditRecord> all;
    EXPECT_TRUE(
        store_->audit().read([&](AuditRecord record) { all.push_back(std::move(record)); }));
    return all;
  }
};

TEST_F(AdoptTest, AddsAnEntryAndRecordsIt) {
  const auto added = adopt("fam/K", "x");
  ASSERT_TRUE(added);
  EXPECT_TRUE(*added);
  EXPECT_EQ(scratch_.read("base/fam/K/done-a"), "x");
  const auto all = records();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].unit, "fam/K");
  EXPECT_EQ(all[0].job, "remote");
  ASSERT_EQ(all[0].files.size(), 1U);
  EXPECT_EQ(all[0].files[0].path, "fam/K/done-a");
}

TEST_F(AdoptTest, TheFirstWriterWins) {
  scratch_.write("base/fam/K/done-a", "first");
  const auto added = adopt("fam/K", "second");
  ASSERT_TRUE(added);
  EXPECT_FALSE(*added);
  EXPECT_EQ(scratch_.read("base/fam/K/done-a"), "first");
  EXPECT_EQ(scratch_.read("staged/fam/K/done-a"), "second");
  EXPECT_TRUE(records().empty());
}

TEST_F(AdoptTest, TakesOnlyWholeUnitsOfKnownFamilies) {
  for (const char* unit : {"fam/K/part", "unknown/K"}) {
    EXPECT_TRUE(adopt(unit, "x").failed_with(EINVAL)) << unit;
    EXPECT_FALSE(scratch_.exists(std::string("base/") + unit)) << unit;
  }
}

TEST_F(AdoptTest, PathsOfAnotherMountAreRefusedOnceTheMountIsKnown) {
  constexpr const char* kForeign = R"(["/elsewhere/fam/K/a"])";
  EXPECT_TRUE(adopt("fam/K", kForeign));
  ASSERT_TRUE(store_->record_mount_path("/ci-cache"));
  EXPECT_TRUE(adopt("fam/L", kForeign).failed_with(EXDEV));
  EXPECT_FALSE(scratch_.exists("base/fam/L"));
  EXPECT_TRUE(adopt("fam/M", R"(["/ci-cache/fam/M/a"])"));
}

}  // namespace
}  // namespace cacheshim
