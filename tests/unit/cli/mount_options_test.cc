// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/mount_options.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "cli/configuration/overlay_options.h"
#include "cli/mounting/mount_helper.h"
#include "tests/unit/support/failure_of.h"

namespace cacheshim::cli {
namespace {

using Words = std::vector<std::string>;

constexpr unsigned long kUsual = MS_NOSUID | MS_NODEV;

TEST(MountOptions, AreSplitAtCommasThatAreNotEscaped) {
  EXPECT_EQ(split_options({"ro,noexec", "", "x=a\\,b,,c\\:d"}),
            (Words{"ro", "noexec", "x=a,b", "c\\:d"}));
  // The first '\' escapes the second one, not the comma.
  EXPECT_EQ(split_options({"a\\\\,b"}), (Words{"a\\\\", "b"}));
}

TEST(MountOptions, BecomeFlagsAndTheLastOneApplies) {
  const auto flags = [](const Words& words) { return parse_mount_options(words).flags; };
  EXPECT_EQ(flags({}), kUsual);
  EXPECT_EQ(flags({"ro,noexec", "noatime"}), kUsual | MS_RDONLY | MS_NOEXEC | MS_NOATIME);
  EXPECT_EQ(flags({"ro", "rw"}), kUsual);
  EXPECT_EQ(flags({"rw", "ro", ""}), kUsual | MS_RDONLY);
  EXPECT_EQ(flags({"noatime,strictatime"}), kUsual | MS_STRICTATIME);
  EXPECT_EQ(flags({"allow_other", "default_permissions", "x-systemd.automount,_netdev"}), kUsual);
}

TEST(MountOptions, SetTheOwnerThatIsShown) {
  EXPECT_FALSE(parse_mount_options({}).owners.keep);
  EXPECT_FALSE(parse_mount_options({"owner=keep,owner=squash"}).owners.keep);
  const MountOptions keep = parse_mount_options({"owner=keep"});
  EXPECT_TRUE(keep.owners.keep && keep.owners.acls);
  EXPECT_FALSE(parse_mount_options({"owner=keep,noacl"}).owners.acls);
}

TEST(MountOptions, RefuseUnknownOptionsAndNameTheKnownOnes) {
  for (const char* option : {"suid", "dev", "owner=mine", "RO", "uid=0", "lowerdir=/a"}) {
    const std::string failure = failure_of([&] { (void)parse_mount_options({"ro", option}); });
    EXPECT_EQ(
        failure.rfind("2 unknown mount option '" + std::string(option) + "'; known are ro,", 0), 0U)
        << failure;
  }
}

TEST(OverlayOptions, NameTheDirectories) {
  const OverlayOptions options = parse_overlay_options(
      {"lowerdir=/one:/t\\:wo:th\\\\ree\\,,upperdir=/u\\:p,workdir=/w", "noatime"}, true);
  EXPECT_EQ(options.directories.lowers, (Words{"/one", "/t:wo", "th\\ree,"}));
  EXPECT_EQ(options.directories.upper, "/u:p");
  EXPECT_EQ(options.directories.work, "/w");
  EXPECT_EQ(options.mount.flags, kUsual | MS_NOATIME);
  EXPECT_TRUE(options.ignored.empty());
}

TEST(OverlayOptions, KeepOwnersAndAreReadOnlyWithoutAnUpper) {
  const OverlayOptions options = parse_overlay_options({"lowerdir=/a"}, true);
  EXPECT_EQ(options.mount.flags, kUsual | MS_RDONLY);
  EXPECT_TRUE(options.mount.owners.keep);
  EXPECT_FALSE(options.mount.owners.shown_uid || options.mount.owners.shown_gid);
  EXPECT_EQ(parse_overlay_options({"lowerdir=/a,rw"}, true).mount.flags & MS_RDONLY,
            static_cast<unsigned long>(MS_RDONLY));
}

TEST(OverlayOptions, AllowSetIdsAndDevicesWhenAsked) {
  EXPECT_EQ(
      parse_overlay_options({"lowerdir=/a,upperdir=/u,workdir=/w,suid,dev"}, true).mount.flags, 0U);
}

TEST(OverlayOptions, DenySetIdsAndDevicesToOthersThanRoot) {
  const OverlayOptions options = parse_overlay_options({"lowerdir=/a,suid,dev"}, false);
  EXPECT_EQ(options.mount.flags & kUsual, kUsual);
  EXPECT_EQ(options.denied, (Words{"suid", "dev"}));
}

TEST(MountOptions, TakeASourceAndANonemptyMountPoint) {
  const MountOptions options = parse_mount_options({"fsname=a\\,b\\\\c,nonempty"});
  EXPECT_EQ(options.source, "a,b\\c");
  EXPECT_TRUE(options.may_be_nonempty);
  EXPECT_FALSE(parse_mount_options({"rw"}).may_be_nonempty);
}

TEST(MountOptions, IgnoreWordsForMountAndUmountOnly) {
  const MountOptions options = parse_mount_options(
      {"user,users,owner,group,user=me,uhelper=x,comment=y,x-systemd.z,silent,nofail,_netdev"});
  EXPECT_EQ(options.flags, kUsual);
}

TEST(MountOptions, NameTheProgramThatRemounts) {
  const std::string refusal = failure_of([] { (void)parse_mount_options({"remount,ro"}); });
  EXPECT_EQ(refusal.rfind("2 option 'remount' is for mount(8)", 0), 0U) << refusal;
}

TEST(OverlayOptions, SquashToIdsWhateverTheOrder) {
  const auto owners = [](const std::string& words) {
    return parse_overlay_options({"lowerdir=/a," + words}, true).mount.owners;
  };
  EXPECT_EQ(owners("squash_to_root").shown_uid, 0U);
  EXPECT_EQ(owners("squash_to_root").shown_gid, 0U);
  EXPECT_EQ(owners("squash_to_uid=7,squash_to_root").shown_uid, 7U);
  EXPECT_EQ(owners("squash_to_root,squash_to_gid=8").shown_gid, 8U);
  EXPECT_FALSE(owners("squash_to_uid=7").shown_gid);
  EXPECT_EQ(owners("owner=squash").shown_uid, ::geteuid());
  EXPECT_EQ(owners("owner=squash,squash_to_gid=8").shown_gid, 8U);
}

TEST(OverlayOptions, IgnoreAndReportSwitchesOfOtherOverlays) {
  const OverlayOptions options = parse_overlay_options(
      {"lowerdir=/a,threaded=1,fast_ino=1,noxattrs=1,volatile,index=off"}, true);
  EXPECT_EQ(options.ignored,
            (Words{"threaded=1", "fast_ino=1", "noxattrs=1", "volatile", "index=off"}));
}

TEST(OverlayOptions, RejectContradictions) {
  const auto refusal = [](const std::string& words) {
    return failure_of([&] { (void)parse_overlay_options({words}, true); });
  };
  EXPECT_EQ(refusal("upperdir=/u,workdir=/w").rfind("2 option 'lowerdir=' is missing", 0), 0U);
  EXPECT_EQ(refusal("lowerdir=/a,upperdir=/u").rfind("2 option 'upperdir=' needs 'workdir='", 0),
            0U);
  EXPECT_EQ(refusal("lowerdir=/a,workdir=/w").rfind("2 option 'workdir=' needs 'upperdir='", 0),
            0U);
  EXPECT_EQ(refusal("lowerdir=/a::/b"), "2 option 'lowerdir=/a::/b' names an empty path");
  EXPECT_EQ(refusal("lowerdir=/a,squash_to_uid=x"),
            "2 option 'squash_to_uid' needs a number, not 'x'");
  EXPECT_EQ(refusal("lowerdir=/a,squash_to_gid=4294967295"),
            "2 option 'squash_to_gid' needs a number, not '4294967295'");
  EXPECT_EQ(refusal("lowerdir=/a,plugins=x").rfind("2 unknown overlay option 'plugins=x'", 0), 0U);
}

TEST(MountHelper, IsRecognizedByItsName) {
  EXPECT_TRUE(is_mount_helper("/sbin/mount.fuse.cacheshim"));
  EXPECT_TRUE(is_mount_helper("mount.fuse.cacheshim"));
  EXPECT_FALSE(is_mount_helper("/usr/bin/cacheshim"));
  EXPECT_FALSE(is_mount_helper(""));
}

TEST(MountHelper, UnmountsByItsOtherName) {
  EXPECT_TRUE(is_umount_helper("/sbin/umount.fuse.cacheshim"));
  EXPECT_FALSE(is_umount_helper("/sbin/mount.fuse.cacheshim"));
  EXPECT_FALSE(is_mount_helper("/sbin/umount.fuse.cacheshim"));
  EXPECT_EQ(words_of_umount_helper({"/mnt", "-n", "-l", "-f", "-v", "-r", "-t", "fuse.cacheshim",
                                    "-N", "/proc/1/ns/mnt"}),
            (Words{"umount-as-helper", "/mnt", "-l", "-f", "-r"}));
}

TEST(MountHelper, MountsAnOverlayIfALowerIsNamed) {
  const Words given = {"a,b\\c", "/mnt",          "-n", "-sv", "-o", "rw,lowerdir=/a:/b\\,c",
                       "-t",     "fuse.cacheshim"};
  EXPECT_EQ(words_of_mount_helper(given, /*is_root=*/false),
            (Words{"overlay", "-o", "fsname=a\\,b\\\\c", "-o", "rw,lowerdir=/a:/b\\,c", "/mnt"}));
}

TEST(MountHelper, GivesRootsOverlaysTheDefaultsOfMount8) {
  const Words words =
      words_of_mount_helper({"o", "/mnt", "-o", "rw,nosuid,lowerdir=/a"}, /*is_root=*/true);
  EXPECT_EQ(words, (Words{"overlay", "-o", "suid,dev", "-o", "fsname=o", "-o",
                          "rw,nosuid,lowerdir=/a", "/mnt"}));
  const auto flags =
      parse_overlay_options({"suid,dev", "fsname=o", "rw,nosuid,lowerdir=/a"}, true).mount.flags;
  EXPECT_EQ(flags & kUsual, static_cast<unsigned long>(MS_NOSUID));
}

TEST(MountHelper, RemountsIfTheOptionsSaySo) {
  EXPECT_EQ(words_of_mount_helper({"o", "/mnt", "-o", "ro,remount,lowerdir=/a"}, true),
            (Words{"remount", "-o", "ro,remount,lowerdir=/a", "/mnt"}));
}

TEST(MountHelper, MountsAStoreOtherwise) {
  EXPECT_EQ(
      words_of_mount_helper({"/data", "/ci-cache", "-o", "rw,suid,noatime,layers=/nvme"}, true),
      (Words{"mount", "-o", "rw", "-o", "noatime", "--layers=/nvme", "--store=/data",
             "/ci-cache"}));
  EXPECT_EQ(words_of_mount_helper({"/data"}, true), (Words{"mount", "--store=/data"}));
}

}  // namespace
}  // namespace cacheshim::cli
