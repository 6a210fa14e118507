// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include "store/profiles/profile.h"
#include "tests/shim/stage.h"

// Tests what the library finds and prints when a process starts.
namespace cacheshim {
namespace {

class ShimStart : public testing::Test {
 protected:
  Stage stage_;
};

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

constexpr const char* kPrintVariable = "printf %s \"$TRITON_CACHE_DIR\"";
constexpr const char* kWriteDefault = "mkdir -p ~/.triton/cache/K && echo x > ~/.triton/cache/K/f";

TEST_F(ShimStart, SetsTheCachesOwnVariable) {
  const Ended ended = stage_.run_shell(kPrintVariable);
  EXPECT_EQ(ended.out, stage_.mount() + "/triton");
  EXPECT_EQ(ended.err, "");
}

TEST_F(ShimStart, RoutesTheDefaultPathInChildrenAndGrandchildren) {
  const Ended ended = stage_.run_shell(std::string("sh -c '") + kWriteDefault + "' && sh -c \"" +
                                       "cat ~/.triton/cache/K/f\"");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.out, "x\n");
  EXPECT_EQ(read_text(stage_.view() + "/K/f"), "x\n");
}

// bash exports its own setenv, getenv and putenv.
TEST_F(ShimStart, WorksInBash) {
  const Ended ended =
      stage_.run({"/bin/bash", "-c", std::string(kWriteDefault) + "; " + kPrintVariable + "; env"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  EXPECT_NE(ended.out.find("TRITON_CACHE_DIR=" + stage_.mount() + "/triton\n"), std::string::npos);
  EXPECT_TRUE(exists(stage_.view() + "/K/f"));
}

TEST_F(ShimStart, IsAbsentAndSilentWhenDisabled) {
  stage_.environment["CACHESHIM_DISABLE"] = "1";
  const Ended ended = stage_.run_shell(std::string(kWriteDefault) + "; " + kPrintVariable);
  EXPECT_EQ(ended.out + ended.err, "");
  EXPECT_TRUE(exists(stage_.default_directory() + "/K/f"));
}

TEST_F(ShimStart, ReportsAMissingMountOncePerTreeOfProcesses) {
  stage_.unmount();
  const Ended ended = stage_.run_shell("sh -c 'cat /dev/null; sh -c true'; cat /dev/null; exit 7");
  EXPECT_EQ(ended.status, 7);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err,
            "cacheshim: no cacheshim mount at " + stage_.mount() + "; running without it\n");
}

TEST_F(ShimStart, IsInactiveWithoutAMount) {
  stage_.unmount();
  const Ended ended = stage_.run_shell(std::string(kWriteDefault) + "; " + kPrintVariable);
  EXPECT_EQ(ended.out, "");
  EXPECT_TRUE(exists(stage_.default_directory() + "/K/f"));
}

TEST_F(ShimStart, TheInstalledLibraryReadsTheKernelsMountTable) {
  stage_.environment["LD_PRELOAD"] = std::getenv("CACHESHIM_LIBRARY");
  const Ended ended = stage_.run_shell("exit 3");
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(ended.err,
            "cacheshim: no cacheshim mount at " + stage_.mount() + "; running without it\n");
}

TEST_F(ShimStart, StrictStopsTheProgramWithStatus69) {
  stage_.unmount();
  stage_.environment["CACHESHIM_STRICT"] = "1";
  const Ended ended = stage_.run_shell("echo ran");
  EXPECT_EQ(ended.status, 69);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(count_lines(ended.err), 1u);
}

TEST_F(ShimStart, WritesItsLineToTheLogInstead) {
  stage_.unmount();
  stage_.environment["CACHESHIM_LOG"] = stage_.path("log");
  write_text(stage_.path("log"), "before\n");
  EXPECT_EQ(stage_.run_shell("true").err, "");
  EXPECT_EQ(read_text(stage_.path("log")), "before\ncacheshim: no cacheshim mount at " +
                                               stage_.mount() + "; running without it\n");
}

TEST_F(ShimStart, LinesOfTheLibraryControlNoTerminal) {
  stage_.environment["CACHESHIM_MOUNT"] = "x\x1b[2J\ncacheshim: forged\xC2\23331m";
  const Ended ended = stage_.run_shell("true");
  EXPECT_EQ(ended.err,
            "cacheshim: CACHESHIM_MOUNT 'x\\x1b[2J\\x0acacheshim: forged\\xc2\\x9b31m' is "
            "not an absolute path; running without it\n");
}

TEST_F(ShimStart, RootUsesNoMountOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const char* root : {"/", "/.jobs/j1"}) {
    stage_.mount_as(root, 20002);
    const Ended ended = stage_.run_shell(kPrintVariable);
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(ended.err, "cacheshim: another user has mounted " + stage_.mount() +
                             ", so root does not use it; running without it\n");
  }
  stage_.environment["CACHESHIM_STRICT"] = "1";
  EXPECT_EQ(stage_.run_shell("echo ran").status, 69);
}

TEST_F(ShimStart, RootsLogIsNotWrittenThroughAPathOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  namespace fs = std::filesystem;
  stage_.unmount();
  const auto expect_unused = [&](const std::string& log, const std::string& target) {
    stage_.environment["CACHESHIM_LOG"] = log;
    write_text(target, "before\n");
    EXPECT_EQ(count_lines(stage_.run_shell("true").err), 1u) << log;
    EXPECT_EQ(read_text(target), "before\n") << log;
  };
  const std::string target = stage_.path("target");
  fs::create_symlink(target, stage_.path("link"));
  expect_unused(stage_.path("link"), target);
  fs::create_directories(stage_.path("theirs"));
  ASSERT_EQ(::chown(stage_.path("theirs").c_str(), 20002, 20002), 0);
  expect_unused(stage_.path("theirs/log"), stage_.path("theirs/log"));
  fs::create_directory_symlink(stage_.path(""), stage_.path("theirs/up"));
  expect_unused(stage_.path("theirs/up/target"), target);
  fs::create_directories(stage_.path("open"));
  fs::permissions(stage_.path("open"), fs::perms::all);
  expect_unused(stage_.path("open/log"), stage_.path("open/log"));
  stage_.environment["SUDO_UID"] = "20002";
  expect_unused(target, target);
}

TEST_F(ShimStart, RootsLogMayBeStderrOrAFileOfRoot) {
  stage_.unmount();
  stage_.environment["CACHESHIM_LOG"] = "/dev/stderr";
  EXPECT_EQ(count_lines(stage_.run_shell("true").err), 1u);
  stage_.environment["CACHESHIM_LOG"] = stage_.path("new-log");
  EXPECT_EQ(stage_.run_shell("true").err, "");
  EXPECT_EQ(count_lines(read_text(stage_.path("new-log"))), 1u);
}

TEST_F(ShimStart, RefusesARelativeMountPath) {
  stage_.environment["CACHESHIM_MOUNT"] = "cache";
  const Ended ended = stage_.run_shell("exit 4");
  EXPECT_EQ(ended.status, 4);
  EXPECT_EQ(ended.err,
            "cacheshim: CACHESHIM_MOUNT 'cache' is not an absolute path; running without it\n");
}

TEST_F(ShimStart, AcceptsAMountPathWithTrailingSlashes) {
  stage_.environment["CACHESHIM_MOUNT"] = "/" + stage_.mount() + "//";
  EXPECT_EQ(stage_.run_shell(kPrintVariable).out, stage_.mount() + "/triton");
}

TEST_F(ShimStart, ABrokenStderrKillsNothing) {
  stage_.unmount();
  const Ended ended =
      stage_.run({"/bin/bash", "-c",
                  "unset CACHESHIM_WARNED; { sh -c 'exit 5'; echo $? >&3; } 2> >(:) 3>&1; wait"});
  EXPECT_EQ(ended.out, "5\n");
  EXPECT_EQ(stage_.run_shell("unset CACHESHIM_WARNED; sh -c 'exit 6' 2>&-").status, 6);
}

TEST_F(ShimStart, LeavesAFamilyAloneThatTheUserHasPutElsewhere) {
  stage_.environment["TRITON_CACHE_DIR"] = "/elsewhere";
  EXPECT_EQ(stage_.run_shell(std::string(kWriteDefault) + "; " + kPrintVariable).out, "/elsewhere");
  EXPECT_TRUE(exists(stage_.default_directory() + "/K/f"));
}

TEST_F(ShimStart, KeepsTheUsersOwnVariables) {
  stage_.environment["MINE"] = "1";
  const Ended with = stage_.run({"/usr/bin/env"});
  stage_.environment["LD_PRELOAD"] = "";
  const Ended without = stage_.run({"/usr/bin/env"});
  EXPECT_NE(with.out.find("MINE=1\n"), std::string::npos);
  std::set<std::string> added = lines_of(with.out);
  for (const std::string& line : lines_of(without.out)) added.erase(line);
  EXPECT_EQ(added.count("TRITON_CACHE_DIR=" + stage_.mount() + "/triton"), 1U);
  std::erase_if(added, [&](const std::string& line) {  // ignores the families' variables
    return line.find("=" + stage_.mount() + "/") != std::string::npos;
  });
  EXPECT_EQ(added.size(), 4U);  // LD_PRELOAD, CACHESHIM_WARNED, and two for CUDA
}

TEST_F(ShimStart, PathsUnderABoundViewStayAsTheyAre) {
  stage_.mount_as("/.jobs/other");
  const Ended ended =
      stage_.run_shell("echo x > $CACHESHIM_MOUNT/plain; echo y > ~/.triton/cache/d");
  EXPECT_EQ(ended.err, "");
  EXPECT_TRUE(exists(stage_.mount() + "/plain"));
  EXPECT_TRUE(exists(stage_.view() + "/d"));  // through the symlink in the mount's root
}

TEST_F(ShimStart, PathsUnderTheMountGoToTheJobsView) {
  EXPECT_EQ(stage_.run_shell("echo x > $CACHESHIM_MOUNT/plain").status, 0);
  EXPECT_TRUE(exists(stage_.mount() + "/.jobs/j1/plain"));
  stage_.environment["CACHESHIM_JOB"] = "";
  EXPECT_EQ(stage_.run_shell("echo x > $CACHESHIM_MOUNT/plain").status, 0);
  EXPECT_TRUE(exists(stage_.mount() + "/plain"));
}

TEST_F(ShimStart, DotDotLeadsOutOfARouteAsOutOfAPlainDirectory) {
  write_text(stage_.path("home/outside"), "found in home\n");
  write_text(stage_.path("outside"), "found beside the mount\n");
  const Ended ended = stage_.run_shell(
      "mkdir ~/.triton/cache/K ~/.triton/cache/K/L && cat ~/.triton/cache/K/../../../outside &&"
      "env -C ~/.triton/cache/K cat ../../../outside && env -C ~/.triton/cache cat ../../outside &&"
      "env -C $CACHESHIM_MOUNT/triton/K/L cat ../../../../outside &&"
      "env -C ~/.triton/cache/K /bin/pwd && env -C ~ cat .triton/cache/K/../../../outside");
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.out, "found in home\nfound in home\nfound in home\nfound beside the mount\n" +
                           stage_.default_directory() + "/K\nfound in home\n");
  EXPECT_FALSE(exists(stage_.path("home/.triton")));
}

TEST_F(ShimStart, ASlurmJobThatTheCgroupContradictsSelectsNoView) {
  stage_.environment["CACHESHIM_JOB"] = "";
  stage_.environment["SLURM_JOB_ID"] = "77";
  write_text(stage_.path("cgroup"), "0::/slurm/uid_1/job_78/step_0\n");
  EXPECT_EQ(stage_.run_shell("echo x > $CACHESHIM_MOUNT/plain").status, 0);
  EXPECT_TRUE(exists(stage_.mount() + "/plain"));
}

class ShimRoutes : public ShimStart {
 protected:
  std::string routes_file(const std::string& base) {
    std::string escaped = stage_.mount().substr(1);  // may contain '-', which must be escaped
    std::string directory;
    for (const char c : escaped)
      directory += c == '/' ? "-" : c == '-' ? "\\x2d" : std::string(1, c);
    const std::string path = stage_.path(base) + "/cacheshim/" + directory;
    std::filesystem::create_directories(path);
    return path + "/routes";
  }
  std::string mounts_file() {
    std::filesystem::create_directories(stage_.mount() + "/.cacheshim");
    return stage_.mount() + "/.cacheshim/routes";
  }
  std::string other_routes() {
    Profile profile;
    profile.name = "triton";
    profile.variable = "OTHER_VARIABLE";
    profile.evidence = Evidence::kRun;
    profile.default_paths = {"~/other"};
    return compile_routes({profile});
  }
};

TEST_F(ShimRoutes, ComeFromTheRunDirectory) {
  write_text(routes_file("run"), other_routes());
  const Ended ended = stage_.run_shell("echo x > ~/other/f; printf %s \"$OTHER_VARIABLE\"");
  EXPECT_EQ(ended.out, stage_.mount() + "/triton");
  EXPECT_TRUE(exists(stage_.view() + "/f"));
}

// The library treats uid 0 of a user namespace that has only one user as that user, not as root.
TEST_F(ShimRoutes, ComeFromTheUsersRunDirectoryOtherwise) {
  stage_.environment["XDG_RUNTIME_DIR"] = stage_.path("user");
  write_text(routes_file("user"), other_routes());
  const auto run = [&] {
    return stage_.run({"/usr/bin/unshare", "--user", "--map-root-user", "/bin/sh", "-c",
                       "printf %s \"$OTHER_VARIABLE\""});
  };
  const Ended ended = run();
  if (ended.err.find("unshare failed") != std::string::npos) GTEST_SKIP() << ended.err;
  EXPECT_EQ(ended.out, stage_.mount() + "/triton");
  std::filesystem::permissions(stage_.path("user"), std::filesystem::perms::all);
  EXPECT_EQ(run().out, "") << "others can replace the run directory";
}

TEST_F(ShimRoutes, OfRootDoNotComeFromTheUsersRunDirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  stage_.environment["XDG_RUNTIME_DIR"] = stage_.path("user");
  write_text(routes_file("user"), other_routes());
  const Ended ended = stage_.run_shell("printf %s \"$OTHER_VARIABLE\"");
  EXPECT_EQ(ended.out + ended.err, "");
}

TEST_F(ShimRoutes, AreTheBuiltInOnesIfTheFileIsNoTable) {
  write_text(routes_file("run"), "no table");
  const Ended ended = stage_.run_shell(std::string("sh -c 'sh -c true'; ") + kPrintVariable);
  EXPECT_EQ(ended.out, stage_.mount() + "/triton");
  EXPECT_EQ(ended.err.rfind("cacheshim: cannot use the routes in '", 0), 0u) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << "descendants have printed the line again";
}

TEST_F(ShimRoutes, OfTheUserThatAreInvalidAreReportedOncePerTreeOfProcesses) {
  stage_.environment["CACHESHIM_ROUTES"] = "one:/two";
  const Ended ended = stage_.run_shell(std::string("sh -c 'sh -c true'; ") + kPrintVariable);
  EXPECT_EQ(ended.out, stage_.mount() + "/triton");
  EXPECT_EQ(ended.err,
            "cacheshim: CACHESHIM_ROUTES: 'one' is not /PATH=NAME; running without this route\n"
            "cacheshim: CACHESHIM_ROUTES: '/two' is not /PATH=NAME; running without this route\n");
}

TEST_F(ShimRoutes, ComeFromTheMountIfNoRunDirectoryIsVisible) {
  write_text(mounts_file(), other_routes());
  const Ended ended = stage_.run_shell("echo x > ~/other/f; printf %s \"$OTHER_VARIABLE\"");
  EXPECT_EQ(ended.out + ended.err, stage_.mount() + "/triton");
  EXPECT_TRUE(exists(stage_.view() + "/f"));
}

TEST_F(ShimRoutes, OfTheRunDirectoryAreTakenFirst) {
  write_text(mounts_file(), "no table");
  write_text(routes_file("run"), other_routes());
  const Ended ended = stage_.run_shell("printf %s \"$OTHER_VARIABLE\"");
  EXPECT_EQ(ended.out + ended.err, stage_.mount() + "/triton");
}

TEST_F(ShimRoutes, OfTheMountThatAreNoTableAreReportedOncePerTreeOfProcesses) {
  for (const std::string& text : {std::string("no table"), std::string(70'000, 'x')}) {
    write_text(mounts_file(), text);
    const Ended ended = stage_.run_shell(std::string("sh -c 'sh -c true'; ") + kPrintVariable);
    EXPECT_EQ(ended.out, stage_.mount() + "/triton");
    EXPECT_EQ(ended.err, "cacheshim: cannot use '" + mounts_file() +
                             "': it is not a route table; running with the built-in routes\n");
  }
}

// A FIFO without a writer blocks its reader, as a daemon that hangs does.
TEST_F(ShimRoutes, OfAHungMountAreWaitedForAtMostThreeSeconds) {
  (void)mounts_file();
  ASSERT_EQ(::mkfifo(mounts_file().c_str(), 0644), 0);
  const auto began = std::chrono::steady_clock::now();
  const Ended ended = stage_.run_shell(std::string("exec 2>&1; ") + kPrintVariable);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  EXPECT_EQ(ended.out, stage_.mount() + "/triton");
  EXPECT_EQ(ended.err, "cacheshim: cannot use '" + mounts_file() +
                           "': the daemon does not answer; running with the built-in routes\n");
}

TEST_F(ShimRoutes, RoutesIncludeTheUsersRoutes) {
  stage_.environment["CACHESHIM_ROUTES"] = stage_.path("mine") + "=triton";
  EXPECT_EQ(stage_.run_shell("echo x > " + stage_.path("mine") + "/f").status, 0);
  EXPECT_TRUE(exists(stage_.view() + "/f"));
}

TEST_F(ShimRoutes, OfRootAreNotThoseOfTheUserWhoHasCalledSudo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  stage_.environment["CACHESHIM_ROUTES"] = stage_.path("mine") + "=triton";
  stage_.environment["SUDO_UID"] = "20002";
  const Ended ended = stage_.run_shell("sh -c 'cat " + stage_.path("mine") + "/f'");
  EXPECT_NE(ended.err.find("CACHESHIM_ROUTES may come from the user who ran sudo; root "
                           "ignores it\n"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(count_lines(ended.err), 2u) << ended.err;  // cat prints the second line
  stage_.environment["SUDO_UID"] = "0";
  EXPECT_EQ(stage_.run_shell("echo x > " + stage_.path("mine") + "/f").err, "");
}

TEST_F(ShimRoutes, FollowRelativePathsFromAboveTheDefaultDirectory) {
  const std::string home = stage_.path("home");
  const Ended ended = stage_.run_shell("cd ~ && echo x > .triton/cache/f && cat ./.triton/cache/f");
  EXPECT_EQ(ended.status, 0);
  EXPECT_TRUE(exists(stage_.view() + "/f"));
  std::filesystem::create_directories(stage_.path("elsewhere/.triton/cache"));
  (void)stage_.run_shell("cd " + stage_.path("elsewhere") + " && echo x > .triton/cache/g");
  EXPECT_TRUE(exists(stage_.path("elsewhere/.triton/cache/g")));
}

}  // namespace
}  // namespace cacheshim
