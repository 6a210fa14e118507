// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/unit/kernel/kernel_fixture.h"

// Tests two jobs on one mount with requests as the kernel sends them (fake_kernel.h). In the family
// `fam`, an entry is complete once it has a file "done-*".
namespace cacheshim {
namespace {

bool is_of_name(const FuseNotification& notification, std::uint64_t parent,
                const std::string& name) {
  fuse_notify_inval_entry_out body{};
  if (notification.code != FUSE_NOTIFY_INVAL_ENTRY || notification.body.size() < sizeof body)
    return false;
  std::memcpy(&body, notification.body.data(), sizeof body);
  return body.parent == parent && notification.body.substr(sizeof body) == name_bytes(name);
}

class FuseKernelJobs : public FuseKernelTest {
 protected:
  // Builds an entry as caches do: writes the file under a scratch name, then renames it.
  void build(std::uint64_t family, const std::string& key, const std::string& text) {
    const auto entry = calls_.mkdir(family, key);
    ASSERT_TRUE(entry) << entry.error().code();
    ASSERT_TRUE(calls_.put(*entry, "tmp.1", text));
    EXPECT_EQ(scratch_.read("store/fam/" + key + "/done-1"), "<none>");
    ASSERT_TRUE(calls_.rename(*entry, "tmp.1", *entry, "done-1"));
  }
  // Returns the content of the entry's file, or the text of the error.
  std::string read(std::uint64_t family, const std::string& key) {
    const auto text = [&]() -> Result<std::string> {
      CACHESHIM_TRY(entry, calls_.lookup(family, key));
      return calls_.get(entry, "done-1");
    }();
    return text ? *text : "<errno " + std::to_string(text.error().code()) + ">";
  }

  const std::uint64_t one_ = *calls_.lookup(view_of("one"), "fam");
  const std::uint64_t two_ = *calls_.lookup(view_of("two"), "fam");
};

TEST_F(FuseKernelJobs, TwoJobsSeeEachOthersEntries) {
  EXPECT_NE(one_, two_);
  build(one_, "KEY1", "of one");
  build(two_, "KEY2", "of two");
  EXPECT_EQ(scratch_.read("store/fam/KEY1/done-1"), "of one");
  EXPECT_EQ(read(two_, "KEY1"), "of one");
  EXPECT_EQ(read(one_, "KEY2"), "of two");
  EXPECT_EQ(read(one_, "KEY1"), "of one");
}

TEST_F(FuseKernelJobs, OnlyItsJobSeesAnIncompleteEntry) {
  const auto entry = calls_.mkdir(one_, "KEY");
  ASSERT_TRUE(calls_.put(*entry, "part", "text"));
  EXPECT_EQ(*calls_.get(*entry, "part"), "text");
  EXPECT_TRUE(calls_.lookup(two_, "KEY").failed_with(ENOENT));
  EXPECT_FALSE(scratch_.exists("store/fam/KEY"));
}

TEST_F(FuseKernelJobs, AJobThatMissedAPublishedEntryIsNotified) {
  EXPECT_TRUE(calls_.lookup(two_, "KEY").failed_with(ENOENT));
  build(one_, "KEY", "text");
  EXPECT_TRUE(kernel_.wait_for_notification(
      [&](const FuseNotification& one) { return is_of_name(one, two_, "KEY"); }));
}

TEST_F(FuseKernelJobs, TheFirstOfTwoEntriesOfOneNameIsPublishedAndTheOtherJobKeepsItsOwn) {
  const auto own = calls_.mkdir(two_, "KEY");
  ASSERT_TRUE(calls_.put(*own, "tmp.1", "of two"));
  build(one_, "KEY", "of one");
  ASSERT_TRUE(calls_.rename(*own, "tmp.1", *own, "done-1"));
  EXPECT_EQ(scratch_.read("store/fam/KEY/done-1"), "of one");
  EXPECT_EQ(read(one_, "KEY"), "of one");
  EXPECT_EQ(read(two_, "KEY"), "of two");
}

}  // namespace
}  // namespace cacheshim
