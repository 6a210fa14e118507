// SPDX-License-Identifier: Apache-2.0
#include "locks/file_lock.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <utility>

#include "tests/locks/runtime_cache.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

using Mode = FileLock::Mode;
using Reason = LockError::Reason;
using namespace std::chrono_literals;

struct FileLocks : testing::Test {
  FileLock made() const { return FileLock(path); }
  // Calls flock(2) on the lock file, without FileLock and without waiting. Returns 0, or an errno.
  int raw(int operation) const {
    const UniqueFd fd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    return ::flock(fd.get(), operation | LOCK_NB) == 0 ? 0 : errno;
  }
  static bool timed_out(const FileLock::Result& result) {
    return result && result->reason == Reason::kTimedOut;
  }

  Scratch scratch;
  const std::string path = scratch / "cache";
  const std::string lock_path = path + ".lock";
};

TEST_F(FileLocks, ConstructionCreatesNoLockFile) {
  const FileLock lock = made();
  EXPECT_EQ(lock.path(), lock_path);
  EXPECT_FALSE(lock.is_locked());
  EXPECT_EQ(lock.fd(), -1);
  EXPECT_FALSE(scratch.exists("cache.lock"));
}

TEST_F(FileLocks, ExclusiveLocksExcludeEachOther) {
  FileLock one = made(), two = made();
  EXPECT_FALSE(one.lock());
  EXPECT_TRUE(one.is_locked());
  EXPECT_TRUE(timed_out(two.try_lock()));
  EXPECT_FALSE(two.is_locked());
  one.unlock();
  EXPECT_FALSE(two.try_lock());
}

TEST_F(FileLocks, SharedLocksDoNotExcludeEachOther) {
  FileLock one = made(), two = made();
  EXPECT_FALSE(one.lock(Mode::kShared));
  EXPECT_FALSE(two.try_lock(Mode::kShared));
}

TEST_F(FileLocks, SharedAndExclusiveExcludeEachOther) {
  FileLock reader = made(), other = made(), writer = made();
  EXPECT_FALSE(reader.lock(Mode::kShared));
  EXPECT_FALSE(other.lock(Mode::kShared));
  EXPECT_TRUE(timed_out(writer.try_lock()));
  reader.unlock();
  EXPECT_TRUE(timed_out(writer.try_lock()));
  other.unlock();
  EXPECT_FALSE(writer.try_lock());
  EXPECT_TRUE(timed_out(reader.try_lock(Mode::kShared)));
}

TEST_F(FileLocks, AZeroTimeoutTriesOnce) {
  FileLock one = made(), two = made();
  EXPECT_FALSE(two.try_lock_for(0ms));
  EXPECT_TRUE(timed_out(one.try_lock_for(0ms)));
  EXPECT_TRUE(timed_out(one.try_lock_for(-5ms)));
}

TEST_F(FileLocks, ATimeoutIsWaitedForAndItsErrorNamesTheFile) {
  FileLock one = made(), two = made();
  ASSERT_FALSE(one.lock());
  const auto begin = std::chrono::steady_clock::now();
  const auto refused = two.try_lock_for(120ms);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 120ms);
  ASSERT_TRUE(timed_out(refused));
  EXPECT_EQ(refused->code, EWOULDBLOCK);
  EXPECT_EQ(refused->message(), "cannot lock '" + lock_path + "': others have it locked");
}

TEST_F(FileLocks, ALockThatIsReleasedInTimeIsTaken) {
  FileLock one = made(), two = made();
  ASSERT_FALSE(one.lock());
  std::atomic<bool> waits{false};
  std::thread waiter([&] {
    waits = true;
    EXPECT_FALSE(two.try_lock_for(60s));
  });
  while (!waits) std::this_thread::yield();
  one.unlock();
  waiter.join();
  EXPECT_TRUE(two.is_locked());
}

TEST_F(FileLocks, TheDestructorReleases) {
  {
    FileLock lock = made();
    ASSERT_FALSE(lock.lock());
    EXPECT_EQ(raw(LOCK_SH), EWOULDBLOCK);
  }
  EXPECT_EQ(raw(LOCK_EX), 0);
}

TEST_F(FileLocks, AMoveTransfersTheLock) {
  FileLock one = made();
  ASSERT_FALSE(one.lock());
  FileLock two(std::move(one));
  EXPECT_TRUE(two.is_locked());
  EXPECT_EQ(raw(LOCK_EX), EWOULDBLOCK);
  FileLock three(scratch / "other");
  ASSERT_FALSE(three.lock());
  three = std::move(two);
  EXPECT_EQ(three.path(), lock_path);
  EXPECT_EQ(raw(LOCK_EX), EWOULDBLOCK);
  FileLock other(scratch / "other");
  EXPECT_FALSE(other.try_lock());  // the lock that `three` held before is free
  three.unlock();
  EXPECT_EQ(raw(LOCK_EX), 0);
}

TEST_F(FileLocks, AMoveOntoItselfChangesNothing) {
  FileLock lock = made();
  ASSERT_FALSE(lock.lock());
  FileLock& same = lock;
  lock = std::move(same);
  EXPECT_TRUE(lock.is_locked());
  EXPECT_EQ(lock.path(), lock_path);
  EXPECT_EQ(raw(LOCK_EX), EWOULDBLOCK);
}

TEST_F(FileLocks, TheLockFileIsReused) {
  ino_t inode = 0;
  for (int round = 0; round < 3; ++round) {
    FileLock lock = made();
    ASSERT_FALSE(lock.lock());
    struct stat st {};
    ASSERT_EQ(::stat(lock_path.c_str(), &st), 0);
    EXPECT_TRUE(round == 0 || st.st_ino == inode);
    inode = st.st_ino;
    lock.unlock();
    EXPECT_TRUE(scratch.exists("cache.lock"));
  }
}

TEST_F(FileLocks, AnOpenErrorIsReported) {
  FileLock lock(scratch / "no/such/directory/cache");
  const auto refused = lock.try_lock_for(60s);  // returns immediately, because waiting would not help
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reason, Reason::kCannotOpen);
  EXPECT_EQ(refused->code, ENOENT);
  EXPECT_NE(refused->message().find("cannot open lock file '" + lock.path() + "': No such file"),
            std::string::npos);
}

TEST_F(FileLocks, RawFlockAndFileLocksExcludeEachOther) {
  FileLock lock = made();
  ASSERT_FALSE(lock.lock(Mode::kShared));
  EXPECT_EQ(raw(LOCK_SH), 0);
  EXPECT_EQ(raw(LOCK_EX), EWOULDBLOCK);
  lock.unlock();
  const UniqueFd fd(::open(lock_path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(fd.get(), LOCK_EX), 0);
  EXPECT_TRUE(timed_out(lock.try_lock(Mode::kShared)));
}

TEST_F(FileLocks, AChildKeepsAnInheritedLockUntilItExits) {
  FileLock lock = made();
  ASSERT_FALSE(lock.lock());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    (void)::close(ends[1]);
    (void)!::read(ends[0], &byte, 1);
    ::_exit(0);
  }
  lock.unlock();
  EXPECT_EQ(raw(LOCK_EX), EWOULDBLOCK);
  (void)::close(ends[1]);
  (void)::close(ends[0]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(raw(LOCK_EX), 0);
}

TEST_F(FileLocks, ExecClosesTheLockFile) {
  FileLock lock = made();
  ASSERT_FALSE(lock.lock());
  EXPECT_NE(::fcntl(lock.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(FileLocks, ASignalDoesNotEndTheWait) {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART, flock(2) returns EINTR
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  FileLock one = made(), two = made();
  ASSERT_FALSE(one.lock());
  std::atomic<bool> done{false};
  FileLock::Result result;
  std::thread waiter([&] {
    result = two.lock();
    done = true;
  });
  for (int signal = 0; signal < 200; ++signal) {
    (void)::pthread_kill(waiter.native_handle(), SIGUSR1);
    std::this_thread::yield();
    EXPECT_FALSE(done);
  }
  one.unlock();
  waiter.join();
  EXPECT_FALSE(result);
  EXPECT_TRUE(two.is_locked());
}

TEST_F(FileLocks, AReadOnlyDirectoryWorksIfTheFileExists) {
  constexpr uid_t kNobody = 65534;
  scratch.write("ro/there.lock", "");
  ASSERT_EQ(::chmod((scratch / "ro/there.lock").c_str(), 0444), 0);
  ASSERT_EQ(::chmod((scratch / "ro").c_str(), 0555), 0);
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) ::_exit(9);
    FileLock there(scratch / "ro/there"), missing(scratch / "ro/missing");
    if (there.lock()) ::_exit(1);
    const auto refused = missing.lock();
    ::_exit(refused && refused->reason == Reason::kCannotOpen && refused->code == EACCES ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ASSERT_EQ(::chmod((scratch / "ro").c_str(), 0755), 0);
}

// Some programs remove lock files. A lock on a removed file would exclude no other process.
TEST_F(FileLocks, ALockOnARemovedFileIsNotReturned) {
  FileLock one = made(), two = made();
  ASSERT_FALSE(one.lock());
  std::thread waiter([&] { EXPECT_FALSE(two.lock()); });
  ASSERT_EQ(::unlink(lock_path.c_str()), 0);
  one.unlock();
  waiter.join();
  EXPECT_EQ(raw(LOCK_EX), EWOULDBLOCK);
}

TEST_F(FileLocks, TheRuntimeCacheMergesAndKeepsItsFileOnContention) {
  const example::RuntimeCache cache(path);
  std::string entries = "stale";
  EXPECT_FALSE(cache.load(entries));
  EXPECT_EQ(entries, "");
  EXPECT_FALSE(cache.save("b\na\n"));
  EXPECT_FALSE(cache.save("c"));
  FileLock holder = made();
  ASSERT_FALSE(holder.lock());
  EXPECT_TRUE(timed_out(cache.save("d", 0ms)));
  cache.save_at_exit("e");
  EXPECT_EQ(scratch.read("cache"), "a\nb\nc\n");
  holder.unlock();
  EXPECT_FALSE(cache.load(entries));
  EXPECT_EQ(entries, "a\nb\nc\n");
}

TEST_F(FileLocks, TheRuntimeCacheDoesNotReplaceAFileThatItCannotRead) {
  ASSERT_EQ(::symlink(path.c_str(), path.c_str()), 0);  // reading fails with ELOOP
  const example::RuntimeCache cache(path);
  std::string entries = "stale";
  EXPECT_TRUE(cache.load(entries));
  EXPECT_TRUE(cache.save("a"));
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);  // reading fails with EISDIR, although opening succeeds
  EXPECT_TRUE(cache.load(entries));
}

}  // namespace
}  // namespace cacheshim
