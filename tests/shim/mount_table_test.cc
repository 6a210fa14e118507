// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/mount_table.h"

#include <gtest/gtest.h>

#include <string>

namespace cacheshim {
namespace {

constexpr const char* kOthers =
    "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
    "24 22 0:22 / /proc rw,nosuid shared:12 - proc proc rw\n";
constexpr const char* kMount =
    "36 22 0:45 / /ci-cache rw,nosuid,nodev master:3 shared:9 - fuse.cacheshim cacheshim rw\n";

MountState scan(std::string_view path, const std::string& text, std::size_t piece = 1 << 20) {
  MountScanner scanner(path);
  for (std::size_t at = 0; at < text.size(); at += piece) {
    scanner.feed(std::string_view(text).substr(at, piece));
  }
  return scanner.finish();
}

TEST(MountTable, FindsTheMountAndItsDevice) {
  const MountState state = scan("/ci-cache", std::string(kOthers) + kMount);
  EXPECT_EQ(state.kind, MountKind::kWhole);
  EXPECT_EQ(state.major, 0u);
  EXPECT_EQ(state.minor, 45u);
  EXPECT_EQ(scan("/ci", std::string(kOthers) + kMount).kind, MountKind::kNone);
  EXPECT_EQ(scan("/ci-cache/x", std::string(kOthers) + kMount).kind, MountKind::kNone);
  EXPECT_EQ(scan("/ci-cache", "").kind, MountKind::kNone);
}

TEST(MountTable, ReadsPiecesOfAnySize) {
  for (const std::size_t piece : {1u, 7u, 64u}) {
    EXPECT_EQ(scan("/ci-cache", std::string(kOthers) + kMount + kOthers, piece).kind,
              MountKind::kWhole);
  }
}

TEST(MountTable, RecognizesABoundViewByItsRoot) {
  EXPECT_EQ(
      scan("/ci-cache", "36 22 0:45 /.jobs/7 /ci-cache rw - fuse.cacheshim cacheshim rw\n").kind,
      MountKind::kBoundView);
}

TEST(MountTable, IgnoresOtherFileSystems) {
  EXPECT_EQ(scan("/ci-cache", "36 22 0:45 / /ci-cache rw - fuse.sshfs x rw\n").kind,
            MountKind::kNone);
  EXPECT_EQ(scan("/ci-cache", "36 22 0:45 / /ci-cache rw - fuse.cacheshimx x rw\n").kind,
            MountKind::kNone);
}

TEST(MountTable, ReportsWhoHasMounted) {
  const auto owner = [](const std::string& end) {
    return scan("/m", "36 22 0:45 / /m rw - fuse.cacheshim " + end + "\n").owner;
  };
  EXPECT_EQ(owner("cacheshim rw,user_id=20002,group_id=0,default_permissions"), 20002u);
  EXPECT_EQ(owner("cacheshim rw,user_id=0,group_id=0"), 0u);
  EXPECT_EQ(owner("user_id=0 rw,user_id=20002,group_id=0"),
            20002u);  // the user chooses the mount source
  EXPECT_EQ(owner("cacheshim rw,context=\"a,user_id=0\",user_id=7,group_id=0"), 7u);
  EXPECT_EQ(owner("cacheshim rw"), static_cast<uid_t>(-1));
}

TEST(MountTable, TheLastMountCoversTheOthers) {
  const std::string covering = "40 36 0:50 / /ci-cache rw - tmpfs tmpfs rw\n";
  EXPECT_EQ(scan("/ci-cache", kMount + covering).kind, MountKind::kNone);
  EXPECT_EQ(scan("/ci-cache", covering + kMount).kind, MountKind::kWhole);
}

TEST(MountTable, DecodesEscapedNames) {
  const std::string line = "36 22 0:45 / /my\\040cache\\134x rw - fuse.cacheshim x rw\n";
  EXPECT_EQ(scan("/my cache\\x", line).kind, MountKind::kWhole);
  EXPECT_EQ(scan("/my\\040cache\\134x", line).kind, MountKind::kNone);
}

TEST(MountTable, SkipsLinesLongerThanItsBuffer) {
  const std::string overlay =
      "50 22 0:60 / /merged rw - overlay overlay rw,lowerdir=" + std::string(100000, 'l') + "\n";
  EXPECT_EQ(scan("/ci-cache", overlay + kMount + overlay, 4096).kind, MountKind::kWhole);
}

}  // namespace
}  // namespace cacheshim
