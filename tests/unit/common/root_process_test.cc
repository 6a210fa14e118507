// SPDX-License-Identifier: Apache-2.0
#include "common/root_process.h"

#include <gtest/gtest.h>

#include <string>

#include "common/mount_info.h"

namespace cacheshim {
namespace {

constexpr const char* kInitial = "         0          0 4294967295\n";
constexpr uid_t kStranger = 20002;

TEST(UserNamespace, RootOfTheInitialNamespaceUsesOnlyItsOwnMounts) {
  for (const char* text : {kInitial, ""}) {
    EXPECT_TRUE(parse_uid_map(text).root_may_use_mount_of(0)) << text;
    EXPECT_FALSE(parse_uid_map(text).root_may_use_mount_of(kStranger)) << text;
    EXPECT_FALSE(parse_uid_map(text).root_may_use_mount_of(static_cast<uid_t>(-1))) << text;
  }
}

TEST(UserNamespace, RootOfAContainerUsesTheMountsOfTheUserWhoHasStartedIt) {
  const UserNamespace found = parse_uid_map("0 1000 1\n1 100000 65536\n");
  EXPECT_TRUE(found.root_may_use_mount_of(0));
  EXPECT_TRUE(found.root_may_use_mount_of(1000));
  EXPECT_FALSE(found.root_may_use_mount_of(kStranger));
  EXPECT_FALSE(found.has_one_user);
}

TEST(UserNamespace, RootOfANamespaceWithOneUserUsesTheMountsOfOthers) {
  EXPECT_TRUE(parse_uid_map("         0      20001          1\n").has_one_user);
  EXPECT_TRUE(parse_uid_map("0 0 1\n").root_may_use_mount_of(20001));
  EXPECT_FALSE(parse_uid_map(kInitial).has_one_user);
}

bool is_lent(const std::string& variable) {
  return has_environment_of_another_user(
      EnvironmentBlock("PATH=/bin" + std::string(1, '\0') + variable));
}

TEST(EnvironmentOfAnotherUser, IsThatOfSudoAndItsLike) {
  EXPECT_TRUE(is_lent("SUDO_UID=1000"));
  EXPECT_TRUE(is_lent("PKEXEC_UID=1000"));
  EXPECT_TRUE(is_lent("DOAS_USER=alice"));
  EXPECT_FALSE(is_lent("SUDO_UID=0"));
  EXPECT_FALSE(is_lent("DOAS_USER=root"));
  EXPECT_FALSE(is_lent("HOME=/root"));
}

TEST(MountOwner, IsTheKernelsOption) {
  MountEntry entry;
  entry.super_options = "rw,user_id=20002,group_id=0,default_permissions,allow_other";
  EXPECT_EQ(owner_of(entry), 20002u);
  entry.super_options = "rw,context=\"a,user_id=0\",user_id=20002,group_id=0";
  EXPECT_EQ(owner_of(entry), 20002u);
  entry.super_options = "rw";
  EXPECT_EQ(owner_of(entry), std::nullopt);
}

}  // namespace
}  // namespace cacheshim
