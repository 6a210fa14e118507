// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileLock: exclusion between processes by flock(2) on a file beside what it protects,
// `<path>.lock`, as Python's filelock and flock(1) do it, on a cacheshim mount and on any other
// file system.
//
// Header-only; needs C++17 and libc. `pkg-config --cflags cacheshim-locks` names its directory. The
// daemon's own locks are in fuse/services/locks/.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace cacheshim {

// Why a lock was not to be had.
struct LockError {
  enum class Reason {
    kTimedOut,    // others had it for as long as was waited
    kCannotOpen,  // the lock file cannot be made or opened
    kCannotLock,  // the file system refuses: no locks there (ENOLCK, ENOSYS), or the mount closes
  };
  Reason reason;
  int code;          // errno; EWOULDBLOCK for kTimedOut
  std::string path;  // of the lock file

  // One line: what, where, why.
  std::string message() const {
    const char* what = reason == Reason::kCannotOpen ? "cannot open lock file" : "cannot lock";
    const std::string why =
        reason == Reason::kTimedOut ? "others have it locked" : std::strerror(code);
    return std::string(what) + " '" + path + "': " + why;
  }
};

// Not an open descriptor's owner until the first lock(). Movable; a moved-from object is like a new
// one of an empty path. Not thread-safe; each thread has its own, and two objects of one process
// exclude each other as those of two processes do.
//
// flock(2) and not fcntl(2): it belongs to the descriptor, so that closing another one of the same
// file does not take it away. A child of fork(2) shares it, and keeps it until it closes the
// descriptor or calls exec (O_CLOEXEC). The lock file is never removed: who removed it would have a
// lock on nothing.
class FileLock {
 public:
  enum class Mode { kShared, kExclusive };
  using Result = std::optional<LockError>;  // nothing: it is locked

  static constexpr std::chrono::milliseconds kCadence{50};
  static constexpr std::chrono::seconds kDefaultTimeout{10};

  // Of `path`.lock. Nothing is opened yet.
  explicit FileLock(std::string path) : path_(std::move(path) + ".lock") {}
  // Of exactly this file.
  static FileLock of_file(std::string lock_path) {
    FileLock lock{std::string()};
    lock.path_ = std::move(lock_path);
    return lock;
  }

  FileLock(FileLock&& other) noexcept
      : path_(std::move(other.path_)),
        fd_(std::exchange(other.fd_, -1)),
        locked_(std::exchange(other.locked_, false)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    if (this == &other) return *this;
    close();
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    locked_ = std::exchange(other.locked_, false);
    return *this;
  }
  ~FileLock() { close(); }

  // Waits for as long as it takes; goes on after signals. What is locked already is converted, as
  // flock(2) does it: not in one step.
  [[nodiscard]] Result lock(Mode mode = Mode::kExclusive) { return take(operation(mode)); }
  // Does not wait.
  [[nodiscard]] Result try_lock(Mode mode = Mode::kExclusive) {
    return take(operation(mode) | LOCK_NB);
  }
  // Tries every kCadence until `timeout` is over; once where it is zero or less.
  [[nodiscard]] Result try_lock_for(std::chrono::milliseconds timeout = kDefaultTimeout,
                                    Mode mode = Mode::kExclusive) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      Result refused = try_lock(mode);
      if (!refused || refused->reason != LockError::Reason::kTimedOut) return refused;
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) return refused;
      pause(left < kCadence ? std::chrono::duration_cast<std::chrono::nanoseconds>(left)
                            : std::chrono::nanoseconds(kCadence));
    }
  }
  // The file stays. No effect where nothing is locked.
  void unlock() noexcept { close(); }

  bool is_locked() const noexcept { return locked_; }
  const std::string& path() const noexcept { return path_; }
  // To be handed to a child; -1 where nothing is locked.
  int fd() const noexcept { return fd_; }

 private:
  static int operation(Mode mode) { return mode == Mode::kShared ? LOCK_SH : LOCK_EX; }

  static void pause(std::chrono::nanoseconds length) {
    constexpr long kSecond = 1'000'000'000;
    const timespec span{static_cast<time_t>(length.count() / kSecond),
                        static_cast<long>(length.count() % kSecond)};
    (void)::nanosleep(&span, nullptr);  // a signal only shortens it
  }

  // In a directory that we may not write to, a lock file that is there serves as well: flock(2)
  // asks for no right to write.
  int open_file() const {
    constexpr mode_t kForAll = 0666;
    int fd = -1;
    do {
      fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, kForAll);
    } while (fd == -1 && errno == EINTR);
    if (fd == -1 && (errno == EACCES || errno == EROFS || errno == EPERM || errno == EISDIR)) {
      const int first = errno;
      fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
      if (fd == -1 && errno == ENOENT) errno = first;
    }
    return fd;
  }

  // Whether the name still leads to the file that is locked: some other program may remove lock
  // files.
  bool is_current() const {
    struct stat held;
    struct stat named;
    return ::fstat(fd_, &held) == 0 && held.st_nlink > 0 && ::stat(path_.c_str(), &named) == 0 &&
           held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  }

  Result take(int operation) {
    for (;;) {
      if (fd_ == -1) fd_ = open_file();
      if (fd_ == -1) return LockError{LockError::Reason::kCannotOpen, errno, path_};
      int status = 0;
      do {
        status = ::flock(fd_, operation);
      } while (status == -1 && errno == EINTR);
      if (status == -1) {
        const int code = errno;
        close();
        const bool is_busy = code == EWOULDBLOCK;
        return LockError{is_busy ? LockError::Reason::kTimedOut : LockError::Reason::kCannotLock,
                         code, path_};
      }
      locked_ = true;
      if (is_current()) return std::nullopt;
      close();
    }
  }

  void close() noexcept {
    locked_ = false;
    if (fd_ == -1) return;
    (void)::close(std::exchange(fd_, -1));  // which unlocks, whatever it says
  }

  std::string path_;
  int fd_ = -1;
  bool locked_ = false;
};

}  // namespace cacheshim
