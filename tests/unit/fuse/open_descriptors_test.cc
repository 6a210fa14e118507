// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "common/unique_fd.h"
#include "fuse/services/locks/open_descriptors.h"

// Tests what the daemon can determine about descriptors of a process whose /proc files it cannot
// read.
namespace cacheshim {
namespace {

constexpr uid_t kNobody = 65534;

// If the caller is root, makes it an unprivileged user. Returns false on failure.
bool drop_privileges() {
  return ::geteuid() != 0 || (::setgid(kNobody) == 0 && ::setuid(kNobody) == 0);
}

// A child process that has a file open; the destructor kills the child. If the child is secret,
// unprivileged processes, even those of its own user, get EACCES when they open its
// /proc/PID/fdinfo.
class Holder {
 public:
  explicit Holder(bool is_secret) : file_(::open("/proc/self/exe", O_RDONLY)) {
    int told[2];
    if (::pipe(told) == -1) std::abort();
    const UniqueFd reader(told[0]);
    UniqueFd writer(told[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool is_ready = !is_secret || (drop_privileges() && ::prctl(PR_SET_DUMPABLE, 0) == 0);
      if (!is_ready || ::write(writer.get(), "x", 1) != 1) ::_exit(1);
      for (;;) (void)::pause();
    }
    writer = UniqueFd();
    char byte = 0;
    EXPECT_EQ(::read(reader.get(), &byte, 1), 1);
  }
  ~Holder() {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  pid_t pid() const { return pid_; }
  int number() const { return file_.get(); }

 private:
  const UniqueFd file_;
  pid_t pid_ = -1;
};

enum class Proc { kPlain, kHidden };
constexpr int kCannot = 2;

// Calls `condition` in an unprivileged child. Returns 0 if the result is true, 1 if it is false, and
// kCannot if the child could not be set up. With kHidden, the child gets EPERM for all /proc files
// of processes that it may not trace.
int run_without_privileges(Proc proc, const std::function<bool()>& condition) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_set_up =
        proc == Proc::kPlain || (::unshare(CLONE_NEWNS) == 0 &&
                                 ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                                 ::mount("proc", "/proc", "proc", 0, "hidepid=1") == 0);
    if (!is_set_up || !drop_privileges()) ::_exit(kCannot);
    ::_exit(condition() ? 0 : 1);
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OpenDescriptors, ADescriptorThatCannotBeReadIsTakenForOpen) {
  const Holder holder(/*is_secret=*/true);
  const OpenDescriptor one{holder.number(), 1, 1};
  const auto run = [](const auto& condition) {
    return run_without_privileges(Proc::kPlain, condition);
  };
  EXPECT_EQ(run([&] { return has_descriptor(holder.pid(), one); }), 0);
  EXPECT_EQ(run([&] { return !has_ended(holder.pid()); }), 0);
  EXPECT_EQ(run([&] { return descriptors_of(holder.pid(), 1, -1).empty(); }), 0);
}

TEST(OpenDescriptors, AProcessThatIsHiddenIsNotTakenForEnded) {
  const Holder holder(/*is_secret=*/true);
  const int answer =
      run_without_privileges(Proc::kHidden, [&] { return !has_ended(holder.pid()); });
  if (answer == kCannot) GTEST_SKIP() << "cannot mount a private /proc";
  EXPECT_EQ(answer, 0);
}

TEST(OpenDescriptors, AnotherFileOfThatNumberIsNotTheDescriptor) {
  const Holder holder(/*is_secret=*/false);
  EXPECT_FALSE(has_descriptor(holder.pid(), {holder.number(), 1, 1}));
  EXPECT_FALSE(has_ended(holder.pid()));
}

TEST(OpenDescriptors, AProcessThatDoesNotExistHasEnded) {
  pid_t pid = -1;
  {
    const Holder holder(/*is_secret=*/false);
    pid = holder.pid();
  }
  EXPECT_FALSE(has_descriptor(pid, {0, 1, 1}));
  EXPECT_TRUE(has_ended(pid));
}

TEST(OpenDescriptors, AZombieHasEnded) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_ended(child));
  EXPECT_FALSE(has_descriptor(child, {0, 1, 1}));
  (void)::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace cacheshim
