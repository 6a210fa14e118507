// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileLock excludes other processes by flock(2) on a file beside the protected file, `<path>.lock`.
// It also excludes processes that lock this file with Python's filelock or with flock(1). Works on a
// cacheshim mount and on any other file system.
//
// Header-only; needs C++17 and libc. `pkg-config --cflags cacheshim-locks` prints its include path.
// The daemon's own locks are in fuse/services/locks/.

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

// Why a lock attempt failed.
struct LockError {
  enum class Reason {
    kTimedOut,    // another holder had the lock, when try_lock() was called or until the timeout
    kCannotOpen,  // the lock file cannot be created or opened
    // The file system has returned an error: it does not support locks (ENOLCK, ENOSYS), or the mount is closing.
    kCannotLock,
  };
  Reason reason;
  int code;          // errno; EWOULDBLOCK for kTimedOut
  std::string path;  // the lock file's path

  // Returns one line that says what failed, on which file, and why.
  std::string message() const {
    const char* what = reason == Reason::kCannotOpen ? "cannot open lock file" : "cannot lock";
    const std::string why =
        reason == Reason::kTimedOut ? "others have it locked" : std::strerror(code);
    return std::string(what) + " '" + path + "': " + why;
  }
};

// Opens no descriptor before the first lock(). Movable; a moved-from object is like a new one with an empty path. Not
// thread-safe: use one object per thread. Two objects of one process exclude each other, as objects of two processes
// do.
//
// Uses flock(2), not fcntl(2): an flock(2) lock belongs to the open file description, so closing a descriptor from
// another open(2) of the file does not release the lock. A child of fork(2) shares the lock until it closes the
// descriptor or calls exec (O_CLOEXEC). FileLock never removes the lock file: a process that had already opened it
// would then lock a file without a name, which excludes nobody.
class FileLock {
 public:
  enum class Mode { kShared, kExclusive };
  using Result = std::optional<LockError>;  // empty on success

  static constexpr std::chrono::milliseconds kCadence{50};
  static constexpr std::chrono::seconds kDefaultTimeout{10};

  // Constructs a lock for the file `path`.lock, but does not open the file yet.
  explicit FileLock(std::string path) : path_(std::move(path) + ".lock") {}
  // Returns a lock for the file `lock_path` itself.
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

  // Waits without a time limit, and continues to wait after a signal. If the object already holds a lock, converts this
  // lock as flock(2) does: not atomically. If one of the lock functions fails, the object holds no lock, even if it
  // held one before.
  [[nodiscard]] Result lock(Mode mode = Mode::kExclusive) { return take(operation(mode)); }
  // As lock(), but fails instead of waiting.
  [[nodiscard]] Result try_lock(Mode mode = Mode::kExclusive) {
    return take(operation(mode) | LOCK_NB);
  }
  // As try_lock(), but tries again every kCadence until `timeout` has passed. If `timeout` is zero
  // or less, tries once.
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
  // Releases the lock; does nothing if there is none. Does not remove the file.
  void unlock() noexcept { close(); }

  bool is_locked() const noexcept { return locked_; }
  const std::string& path() const noexcept { return path_; }
  // Returns the descriptor, to pass it to a child; -1 if nothing is locked.
  int fd() const noexcept { return fd_; }

 private:
  static int operation(Mode mode) { return mode == Mode::kShared ? LOCK_SH : LOCK_EX; }

  static void pause(std::chrono::nanoseconds length) {
    constexpr long kSecond = 1'000'000'000;
    const timespec span{static_cast<time_t>(length.count() / kSecond),
                        static_cast<long>(length.count() % kSecond)};
    (void)::nanosleep(&span, nullptr);  // a signal only shortens the pause
  }

  // If the file cannot be opened for writing or created, opens an existing file for reading:
  // flock(2) needs no write permission for the file or the directory.
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

  // Whether the name still leads to the locked file. Another program may have removed or replaced the
  // lock file.
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
    // close(2) releases the lock even if it reports an error.
    (void)::close(std::exchange(fd_, -1));
  }

  std::string path_;
  int fd_ = -1;
  bool locked_ = false;
};

}  // namespace cacheshim
