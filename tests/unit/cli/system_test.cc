// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/child_process.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/mounting/daemon_end.h"
#include "cli/mounting/mount_users.h"
#include "cli/paths.h"
#include "cli/run_environment.h"
#include "common/exit_codes.h"
#include "common/mount_info.h"
#include "common/unique_fd.h"

namespace cacheshim::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Scratch : public testing::Test {
 protected:
  Scratch() {
    std::string name = testing::TempDir() + "/cli.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no scratch directory";
    path_ = fs::canonical(name);
  }
  ~Scratch() override { fs::remove_all(path_); }

  fs::path path_;
};

constexpr const char* kMountInfo =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "40 22 0:51 / /ci-cache rw,nosuid,nodev shared:9 master:2 - fuse.cacheshim /data rw,user_id=0\n"
    "41 22 0:52 / /with\\040blank\\134 rw - tmpfs none rw\n"
    "not a line\n"
    "42 40 0:53 /sub /ci-cache rw - tmpfs none rw\n";

TEST(MountInfo, ReadsDeviceTypeAndEscapedPath) {
  const auto mounts = parse_mount_info(kMountInfo);
  ASSERT_EQ(mounts.size(), 4U);
  EXPECT_EQ(mounts[1].id, 40U);
  EXPECT_EQ(mounts[1].device, "0:51");
  EXPECT_EQ(mounts[1].type, "fuse.cacheshim");
  EXPECT_EQ(mounts[2].path, "/with blank\\");
  EXPECT_EQ(mounts[3].options, "rw");
  EXPECT_EQ(mounts[3].super_options, "rw");
}

TEST(MountInfo, TheTopmostMountOfAPathIsFound) {
  const auto mounts = parse_mount_info(kMountInfo);
  EXPECT_EQ(find_mount(mounts, "/ci-cache")->type, "tmpfs");
  EXPECT_FALSE(find_mount(mounts, "/ci-cache/triton"));
}

TEST(MountUsers, TheListNamesAFewAndCountsTheRest) {
  std::vector<MountUser> users;
  for (int i = 1; i <= 6; ++i) users.push_back({i, "p", "open file"});
  EXPECT_EQ(describe_users({users[0]}), "p (pid 1, open file)");
  EXPECT_EQ(describe_users(users),
            "p (pid 1, open file), p (pid 2, open file), "
            "p (pid 3, open file), p (pid 4, open file) and 2 more");
}

TEST_F(Scratch, PathsAreResolvedUpToALastComponentThatIsMissing) {
  fs::create_directory(path_ / "real");
  fs::create_directory_symlink("real", path_ / "link");
  EXPECT_EQ(resolve_path(path_ / "link"), path_ / "real");
  EXPECT_EQ(resolve_path(path_ / "link/"), path_ / "real");
  EXPECT_EQ(resolve_path(path_ / "link/missing"), path_ / "real/missing");
  EXPECT_EQ(resolve_path(path_ / "link/missing/"), path_ / "real/missing");
  EXPECT_EQ(resolve_path("/"), "/");
}

// Simulates a control directory with plain files. `control` contains blanks and then the reply: the
// client overwrites the blanks with its request, and reads the rest.
class FakeControl : public Scratch {
 protected:
  FakeControl() {
    fs::create_directory(path_ / ".cacheshim");
    write("version", "1\n");
    write("stats", "{}");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / ".cacheshim" / name) << text;
  }
  void answer(const json& request, const std::string& lines) const {
    write("control", std::string(request.dump().size(), ' ') + lines);
  }
  // Returns the reply to a request, or "CODE MESSAGE" if the request fails.
  std::string reply_to(const json& request) const {
    try {
      return ControlClient(path_).request(request).dump();
    } catch (const Failure& failure) {
      return std::to_string(failure.exit_code()) + " " + failure.what();
    }
  }

  json request_ = {{"op", "job-show"}, {"job", "7"}};
};

TEST_F(FakeControl, TheLastLineIsTheAnswer) {
  answer(request_,
         "{\"progress\":{\"what\":\"w\",\"done\":1,\"total\":2}}\n{\"ok\":true,\"n\":3}\n");
  std::string seen;
  const json result = ControlClient(path_).request(
      request_, [&](std::string_view what, std::uint64_t done, std::uint64_t total) {
        seen += std::string(what) + std::to_string(done) + std::to_string(total);
      });
  EXPECT_EQ(result.value("n", 0), 3);
  EXPECT_EQ(seen, "w12");
}

TEST_F(FakeControl, AnswersMayBeLongerThanOneRead) {
  const std::string text(200'000, 'x');
  answer(request_, json({{"ok", true}, {"text", text}}).dump() + "\n");
  EXPECT_EQ(ControlClient(path_).request(request_).value("text", ""), text);
}

TEST_F(FakeControl, ErrorsKeepTheDaemonsMessageAndExitCode) {
  answer(request_, "{\"error\":\"no job '7'\",\"exit\":1}\n");
  EXPECT_EQ(reply_to(request_), "1 no job '7'");
}

TEST_F(FakeControl, AnEndWithoutAReplyMeansThatTheDaemonEnded) {
  answer(request_, "{\"progress\":{}}\n");
  EXPECT_EQ(reply_to(request_).rfind("69 the daemon of", 0), 0U);
}

TEST_F(FakeControl, FilesAreReadWhole) {
  write("stats", "{\"misses\":1}");
  EXPECT_EQ(ControlClient(path_).read("stats"), "{\"misses\":1}");
}

TEST_F(Scratch, ADirectoryWithoutControlIsNoMount) {
  EXPECT_THROW(ControlClient client(path_), Failure);
  fs::create_directory(path_ / ".cacheshim");  // a store has this directory too
  try {
    const ControlClient client(path_);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code(), kExitUnavailable);
    EXPECT_EQ(std::string(failure.what()).rfind("no cacheshim mount at", 0), 0U);
  }
}

int run_shell(const char* script) {
  return run_child(
      [&] {
        return exec_command({"sh", "-c", script});
      },
      SIGKILL, OrphanPolicy::kLeaveRunning);
}

TEST(RunChild, ReturnsTheCommandsOwnCode) {
  EXPECT_EQ(run_shell("exit 0"), 0);
  EXPECT_EQ(run_shell("exit 7"), 7);
}

TEST(RunChild, ReturnsWhatShellsGiveForSignalsAndMissingCommands) {
  EXPECT_EQ(run_shell("kill -KILL $$"), 128 + SIGKILL);
  const auto run = [](const char* name) {
    return run_child([&] { return exec_command({name}); }, SIGKILL, OrphanPolicy::kLeaveRunning);
  };
  EXPECT_EQ(run("/nonexistent/command"), 127);
  EXPECT_EQ(run("/"), 126);
}

TEST(RunChild, PassesSignalsOn) {
  EXPECT_EQ(run_shell("trap 'exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.01; done"), 9);
  EXPECT_EQ(run_shell("trap 'exit 8' USR1; kill -USR1 $PPID; while :; do sleep 0.01; done"), 8);
}

TEST(Preload, OurOwnEntriesAreTakenOff) {
  EXPECT_EQ(without_our_library("libcacheshim.so"), "");
  EXPECT_EQ(without_our_library("/a/libx.so:/opt/lib/libcacheshim.so /b/liby.so"),
            "/a/libx.so:/b/liby.so");
  EXPECT_EQ(without_our_library("/a/libcacheshim.so.1"), "/a/libcacheshim.so.1");
}

TEST(DaemonEnd, TheHolderOfALockIsReadFromTheKernelsTable) {
  constexpr const char* kTable =
      "1: POSIX  ADVISORY  WRITE 100 08:01:11 0 EOF\n"
      "2: FLOCK  ADVISORY  WRITE 200 08:01:111 0 EOF\n"
      "3: FLOCK  ADVISORY  WRITE 300 08:01:11 0 EOF\n"
      "3: -> FLOCK  ADVISORY  WRITE 400 08:01:11 0 EOF\n"
      "4: -> FLOCK  ADVISORY  WRITE 500 08:01:22 0 EOF\n";
  EXPECT_EQ(find_flock_holder(kTable, makedev(8, 1), 11), 300);
  EXPECT_EQ(find_flock_holder(kTable, makedev(8, 1), 22), 0);
  EXPECT_EQ(find_flock_holder(kTable, makedev(8, 2), 11), 0);
}

// After a daemon has removed its run directory, it may still have to release other resources, such
// as the upper directory of an overlay.
TEST_F(Scratch, ADaemonThatHasRemovedItsRunDirectoryMayStillRun) {
  int told[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, told), 0);
  const std::string lock = path_ / "lock";
  char byte = 0;
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT, 0644);
    (void)!::write(told[1], "l", ::flock(fd, LOCK_EX) == 0 ? 1 : 0);
    (void)!::read(told[1], &byte, 1);
    (void)::unlink(lock.c_str());
    (void)::close(fd);
    (void)!::write(told[1], "r", 1);
    for (;;) ::pause();
  }
  EXPECT_EQ(::read(told[0], &byte, 1), 1);
  const DaemonEnd end(path_);
  EXPECT_FALSE(end.wait(std::chrono::milliseconds(0)));
  EXPECT_EQ(::write(told[0], "e", 1), 1);
  EXPECT_EQ(::read(told[0], &byte, 1), 1);
  EXPECT_FALSE(end.wait(std::chrono::milliseconds(0)));
  (void)::kill(daemon, SIGKILL);
  EXPECT_TRUE(end.wait(std::chrono::seconds(10)));
  EXPECT_EQ(::waitpid(daemon, nullptr, 0), daemon);
  (void)::close(told[0]);
  (void)::close(told[1]);
}

// Simulates a daemon in another PID namespace: the pid that /proc/locks gives for the lock belongs
// to no process in this namespace.
TEST_F(Scratch, ADaemonThatProcDoesNotShowHasEndedWhenItsLockIsFree) {
  UniqueFd lock(::open((path_ / "lock").c_str(), O_RDWR | O_CREAT, 0644));
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(::flock(lock.get(), LOCK_EX) == 0 ? 0 : 1);
  int status = 1;
  ASSERT_EQ(::waitpid(gone, &status, 0), gone);
  EXPECT_EQ(status, 0);
  const DaemonEnd end(path_);
  EXPECT_FALSE(end.wait(std::chrono::milliseconds(0)));
  lock.reset();
  EXPECT_TRUE(end.wait(std::chrono::milliseconds(0)));
}

TEST_F(Scratch, WithoutARunDirectoryThereIsNoEndToWaitFor) {
  EXPECT_TRUE(DaemonEnd("").wait(std::chrono::milliseconds(0)));
  EXPECT_TRUE(DaemonEnd(path_ / "none").wait(std::chrono::milliseconds(0)));
}

TEST_F(Scratch, PreloadPutsTheLibraryInFront) {
  std::ofstream(path_ / "libcacheshim.so") << "";
  const std::string library = path_ / "libcacheshim.so";
  ::setenv("LD_PRELOAD", "/a/other.so:libcacheshim.so", 1);
  EXPECT_TRUE(preload(library));
  EXPECT_EQ(std::string(::getenv("LD_PRELOAD")), library + ":/a/other.so");
  EXPECT_FALSE(preload(path_ / "missing.so"));
  ::unsetenv("LD_PRELOAD");
}

TEST(JobChoice, OptionThenEnvironmentThenSeparateJob) {
  ::setenv("CACHESHIM_JOB", "from env", 1);
  EXPECT_EQ(choose_job("mine").view(), "mine");
  EXPECT_EQ(choose_job("").view(), "from_env");
  EXPECT_THROW((void)choose_job("not mine"), Failure);
  ::unsetenv("CACHESHIM_JOB");
}

}  // namespace
}  // namespace cacheshim::cli
