// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/shim/stage.h"

// Tests situations in which a preloaded library could disturb a program.
namespace cacheshim {
namespace {

namespace fs = std::filesystem;

class ShimClauses : public testing::Test {
 protected:
  const std::string program_ = std::getenv("CACHESHIM_TEST_CLAUSES");

  // Runs the program without the library, to verify that the test's expectation is correct.
  Ended run_natively(const std::string& what, const std::string& argument = "") {
    const std::string preload = stage_.environment["LD_PRELOAD"];
    stage_.environment["LD_PRELOAD"] = "";
    fs::create_directories(stage_.path("plain"));
    const Ended ended = stage_.run({program_, what, stage_.path("plain"), argument});
    stage_.environment["LD_PRELOAD"] = preload;
    return ended;
  }
  Ended run(const std::string& what, const std::string& argument = "") {
    return stage_.run({program_, what, stage_.default_directory(), argument});
  }
  void expect_good(const Ended& ended) {
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(ended.out + ended.err, "");
    EXPECT_FALSE(exists(stage_.path("home/.triton")));
  }
  void preload_before(const std::string& library) {
    stage_.environment["LD_PRELOAD"] = library + ":" + stage_.environment["LD_PRELOAD"];
  }
  void preload_behind(const std::string& library) {
    stage_.environment["LD_PRELOAD"] += ":" + library;
  }
  Stage stage_;
};

class ShimSituation : public ShimClauses, public testing::WithParamInterface<const char*> {};

TEST_P(ShimSituation, IsLeftAlone) {
  EXPECT_EQ(run_natively(GetParam()).status, 0);
  expect_good(run(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(All, ShimSituation,
                         testing::Values("plain", "signals", "fork", "vfork", "spawn", "closed",
                                         "close-range", "filter", "no-descriptors"));

TEST_F(ShimClauses, WorksInACallOfAnEarlierConstructor) {
  const std::string early = std::getenv("CACHESHIM_TEST_EARLY");
  const std::string alone = stage_.environment["LD_PRELOAD"];
  preload_behind(early);
  expect_good(run("early"));
  stage_.environment["LD_PRELOAD"] = alone;
  preload_before(early);
  expect_good(run("early"));
}

TEST_F(ShimClauses, StartsWithoutStandardDescriptors) {
  EXPECT_EQ(stage_
                .run_shell("exec 0<&- 1>&- 2>&-; exec " + program_ + " closed " +
                           stage_.default_directory())
                .status,
            0);
  EXPECT_TRUE(exists(stage_.view() + "/low"));
}

TEST_F(ShimClauses, WritesNoLineIntoAFileOfTheProgram) {
  EXPECT_EQ(run("data-at-stderr", stage_.path("data")).status, 0);
  EXPECT_EQ(read_text(stage_.path("data")), "");
}

TEST_F(ShimClauses, LoadsASecondTimeIntoANamespace) {
  expect_good(run("namespace", stage_.environment["LD_PRELOAD"]));
  EXPECT_TRUE(exists(stage_.view() + "/there"));
}

TEST_F(ShimClauses, FallsBackInAChroot) {
  if (::getuid() != 0) GTEST_SKIP() << "chroot needs root";
  const std::string top = stage_.path("top");
  fs::create_directories(top + stage_.path("home"));
  const Ended ended = run("chroot", top);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(count_lines(ended.err), 1u) << ended.err;
  EXPECT_TRUE(exists(top + stage_.default_directory() + "/x"));
}

TEST_F(ShimClauses, IsAbsentFromSetUidPrograms) {
  if (::getuid() != 0) GTEST_SKIP() << "giving a program away needs root";
  const std::string copy = stage_.path("set-uid");
  fs::copy_file(program_, copy);
  ASSERT_EQ(::chown(copy.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(copy.c_str(), 04755), 0);
  fs::permissions(stage_.path(""), fs::perms::all);
  fs::create_directories(stage_.default_directory());
  fs::permissions(stage_.default_directory(), fs::perms::all);
  const Ended ended = stage_.run({copy, "plain", stage_.default_directory()});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_FALSE(fs::is_empty(stage_.default_directory()));
  EXPECT_TRUE(fs::is_empty(stage_.view()));
}

// Tests the library together with other preloaded libraries that Debian packages. Skips a library that is not
// installed; scripts/test installs them.
class OtherPreloadedLibraries : public ShimClauses,
                                public testing::WithParamInterface<const char*> {};

TEST_P(OtherPreloadedLibraries, WorksBeforeAndAfterAnotherLibrary) {
  const std::string library = GetParam();
  if (!exists(library)) GTEST_SKIP() << library << " is not installed";
  const std::string alone = stage_.environment["LD_PRELOAD"];
  for (const char* what : {"plain", "fork", "spawn"}) {
    stage_.environment["LD_PRELOAD"] = alone;
    preload_before(library);
    expect_good(run(what));
    stage_.environment["LD_PRELOAD"] = alone;
    preload_behind(library);
    expect_good(run(what));
  }
}

#if defined(__x86_64__)
#define CACHESHIM_LIBRARIES "/usr/lib/x86_64-linux-gnu/"
#else
#define CACHESHIM_LIBRARIES "/usr/lib/aarch64-linux-gnu/"
#endif
INSTANTIATE_TEST_SUITE_P(Debians, OtherPreloadedLibraries,
                         testing::Values(CACHESHIM_LIBRARIES "libjemalloc.so.2",
                                         CACHESHIM_LIBRARIES "libtcmalloc_minimal.so.4",
                                         CACHESHIM_LIBRARIES "libeatmydata.so",
                                         CACHESHIM_LIBRARIES "libfakeroot/libfakeroot-sysv.so"));

TEST_F(ShimClauses, WorksAfterASanitizersRuntime) {
  preload_before(std::getenv("CACHESHIM_TEST_ASAN"));
  stage_.environment["ASAN_OPTIONS"] = "detect_leaks=0";
  for (const char* what : {"plain", "fork"}) expect_good(run(what));
}

// Tests children whose environment their parent has built.
class ShimChildren : public ShimClauses {
 protected:
  // Runs `command`, which ends by running env(1). Returns the lines of LD_PRELOAD and the
  // CACHESHIM_ variables.
  std::string ours(const std::string& command) {
    const Ended ended =
        stage_.run_shell(command + " | LC_ALL=C sort | grep '^LD_PRELOAD=\\|^CACHESHIM_'");
    EXPECT_EQ(ended.err, "");
    return ended.out;
  }
  std::string all_of_ours(const std::string& job = "j1") {
    return "CACHESHIM_CUDA_SET=EAGER\nCACHESHIM_HOME=" + stage_.path("home") +
           "\nCACHESHIM_JOB=" + job + "\nCACHESHIM_MOUNT=" + stage_.mount() +
           "\nCACHESHIM_WARNED=0\nLD_PRELOAD=" + std::getenv("CACHESHIM_TEST_LIBRARY") + "\n";
  }
  // A prefix for commands: sets only the variables by which the library finds the simulated mount, and clears all
  // others.
  const std::string clean_ = "env -i TEST_MOUNTINFO=" + stage_.path("mountinfo") +
                             " TEST_CGROUP=" + stage_.path("cgroup") + " TEST_RUN=/nowhere ";
};

TEST_F(ShimChildren, GetOurVariablesWithACleanEnvironment) {
  EXPECT_EQ(ours(clean_ + "/usr/bin/env"), all_of_ours());
  EXPECT_EQ(ours("env -u LD_PRELOAD sh -c env"), all_of_ours());
}

// Some programs restart themselves without preloaded libraries.
TEST_F(ShimChildren, MayRestartThemselvesWithoutTheLibrary) {
  write_text(stage_.path("anew.py"), R"(import os, sys
if 'LD_PRELOAD' in os.environ:
    del os.environ['LD_PRELOAD']
    os.execv(sys.executable, [sys.executable, *sys.argv])
os.execv('/usr/bin/env', ['env']))");
  const std::string found = ours("timeout 20 /usr/bin/python3 " + stage_.path("anew.py"));
  EXPECT_NE(found.find("CACHESHIM_JOB=j1\n"), found.npos) << found;
  EXPECT_EQ(found.find("LD_PRELOAD"), found.npos) << found;
}

TEST_F(ShimChildren, KeepVariablesThatTheyWereGiven) {
  EXPECT_EQ(ours(clean_ + "CACHESHIM_JOB=j2 /usr/bin/env"), all_of_ours("j2"));
  EXPECT_EQ(ours(clean_ + "LD_PRELOAD= /usr/bin/env"), "LD_PRELOAD=\n");
}

TEST_F(ShimChildren, AreLeftAloneIfRequested) {
  EXPECT_EQ(ours(clean_ + "CACHESHIM_EXEC=leave /usr/bin/env"), "CACHESHIM_EXEC=leave\n");
  stage_.environment["CACHESHIM_EXEC"] = "leave";
  EXPECT_EQ(ours(clean_ + "/usr/bin/env"), "");
}

TEST_F(ShimChildren, AreLeftAloneByAnInactiveLibrary) {
  stage_.environment["CACHESHIM_DISABLE"] = "1";
  EXPECT_EQ(ours(clean_ + "/usr/bin/env"), "");
  stage_.environment["CACHESHIM_DISABLE"] = "";
  stage_.environment["CACHESHIM_WARNED"] = "1";
  stage_.unmount();
  EXPECT_EQ(ours(clean_ + "/usr/bin/env"), "");
}

TEST_F(ShimChildren, GetThisLibraryAndNoOtherPreloadedOne) {
  preload_before(std::getenv("CACHESHIM_TEST_EARLY"));
  EXPECT_EQ(ours(clean_ + "/usr/bin/env"), all_of_ours());
  stage_.environment["LD_PRELOAD"] = std::string(std::getenv("CACHESHIM_TEST_EARLY")) + " " +
                                     std::getenv("CACHESHIM_TEST_LIBRARY");
  EXPECT_EQ(ours(clean_ + "/usr/bin/env"), all_of_ours());
}

// A child that inherits its working directory must see it under the name that the parent used, even if no program sets
// PWD.
TEST_F(ShimChildren, HaveTheirParentsNameOfTheDirectory) {
  fs::create_directories(stage_.view() + "/K");
  const std::string in_default = "env -C ~/.triton/cache/K ";
  const std::string default_name = stage_.default_directory() + "/K\n";
  const std::string mount_name = stage_.mount() + "/triton/K\n";
  const auto said = [&](const std::string& command) { return stage_.run_shell(command).out; };
  EXPECT_EQ(said(in_default + "env nice /bin/pwd"), default_name);
  EXPECT_EQ(said(in_default + clean_ + "HOME=$HOME /bin/pwd"), default_name);
  EXPECT_EQ(said(in_default + "env -C $CACHESHIM_MOUNT/triton/K /bin/pwd"), mount_name);
  EXPECT_EQ(said(in_default + "env -C / env -C $CACHESHIM_MOUNT/triton/K /bin/pwd"), mount_name);
  EXPECT_EQ(said("cd ~/.triton/cache/K && sh -c 'cd $CACHESHIM_MOUNT/triton/K && /bin/pwd'"),
            mount_name);
  EXPECT_EQ(said(in_default + "sh -c '/bin/pwd & wait'"), default_name);
  EXPECT_EQ(said(in_default + "env -C / env | grep CACHESHIM_DIRECTORY"), "");
}

TEST_F(ShimChildren, UseTheCache) {
  const Ended ended =
      stage_.run_shell(clean_ + "HOME=\"$HOME\" sh -c 'echo x > ~/.triton/cache/f'");
  EXPECT_EQ(ended.err, "");
  EXPECT_TRUE(exists(stage_.view() + "/f"));
}

// The first program is an i386 program. The second one names a dynamic loader other than glibc's,
// as musl's programs do.
TEST_F(ShimChildren, AreLeftAloneIfTheyCannotLoadTheLibrary) {
#if defined(__x86_64__)
  const Ended other =
      stage_.run_shell("env -i " + std::string(std::getenv("CACHESHIM_TEST_OTHER")));
  if (other.status == 126) GTEST_SKIP() << "this kernel runs no i386 programs";
  EXPECT_EQ(other.status, 0);
  EXPECT_EQ(other.err, "");
  // The library removes itself from LD_PRELOAD when it starts a program that cannot load it,
  // because the program's loader would otherwise print an error. thirty_two_bits.S exits with 1 for an
  // empty LD_PRELOAD, with 2 for any other.
  const std::string program = std::getenv("CACHESHIM_TEST_OTHER");
  EXPECT_EQ(stage_.run_shell(program).status, 1);
  EXPECT_EQ(stage_.run_shell("LD_PRELOAD=/other.so:$LD_PRELOAD " + program).status, 2);
  EXPECT_EQ(stage_.run_shell("CACHESHIM_EXEC=leave " + program).status, 2);
  // The environment contains LD_PRELOAD twice.
  write_text(stage_.path("twice.py"), R"(import ctypes, os, sys
own = os.environb[b'LD_PRELOAD']
words = [b'LD_PRELOAD=' + own, b'LD_PRELOAD=' + own + b':' + b'x' * 60000, None]
ctypes.CDLL(None).execve(sys.argv[1].encode(), (ctypes.c_char_p * 2)(b'other', None),
                         (ctypes.c_char_p * 3)(*words)))");
  EXPECT_EQ(stage_.run_shell("/usr/bin/python3 " + stage_.path("twice.py") + " " + program).status,
            1);
  const std::string loader = "/lib64/ld-linux-x86-64.so.2";
  std::string env = read_text("/usr/bin/env");
  const std::size_t at = env.find(loader);
  ASSERT_NE(at, std::string::npos);
  std::string directory = "/tmp/XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  std::string musl = directory + "/ld-musl.so";
  fs::create_symlink(loader, musl);
  musl.resize(loader.size());
  write_text(stage_.path("env"), env.replace(at, loader.size(), musl));
  fs::permissions(stage_.path("env"), fs::perms::owner_all);
  EXPECT_EQ(ours(clean_ + stage_.path("env")), "");
  EXPECT_EQ(ours(clean_ + "PATH=" + stage_.path("") + ":/usr/bin env"), "");
  fs::remove_all(directory);
#else
  GTEST_SKIP() << "for x86-64";
#endif
}

class ShimWay : public ShimChildren, public testing::WithParamInterface<const char*> {};

TEST_P(ShimWay, AddsOurVariables) {
  EXPECT_EQ(ours(program_ + " child x " + GetParam()), all_of_ours());
}

INSTANTIATE_TEST_SUITE_P(All, ShimWay,
                         testing::Values("execve", "execv", "execvpe", "execvp", "execle", "execl",
                                         "execlp", "execveat", "fexecve", "syscall", "posix_spawn",
                                         "posix_spawnp", "system", "popen"));

}  // namespace
}  // namespace cacheshim
