// SPDX-License-Identifier: Apache-2.0
// Tests flock, fcntl locks and appending writers, between processes of one job.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

// Runs `body` in a child process. Returns the result of `body`, which must be below 255, or 255 if a signal killed the
// child.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

int try_flock(const std::string& path, int operation) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return ::flock(fd.get(), operation | LOCK_NB) == 0 ? 0 : errno;
}

void whole_file_locks(Side& side, const std::string& name) {
  const std::string path = side.path_of(name);
  const UniqueFd first = side.open(name, O_RDONLY);
  if (!first) return;
  side.did("flock exclusive", ::flock(first.get(), LOCK_EX));
  side.note("another exclusive: " +
            std::to_string(in_child([&] { return try_flock(path, LOCK_EX); })));
  side.note("another shared: " +
            std::to_string(in_child([&] { return try_flock(path, LOCK_SH); })));
  side.did("flock shared", ::flock(first.get(), LOCK_SH));
  side.note("another shared: " +
            std::to_string(in_child([&] { return try_flock(path, LOCK_SH); })));
  side.note("another exclusive: " +
            std::to_string(in_child([&] { return try_flock(path, LOCK_EX); })));
  side.note("of the same descriptor: " + std::to_string(in_child([&] {
              return ::flock(first.get(), LOCK_EX) == 0 ? 0 : errno;
            })));
  side.did("unlock", ::flock(first.get(), LOCK_UN));
  side.note("another exclusive: " +
            std::to_string(in_child([&] { return try_flock(path, LOCK_EX); })));
}

// A lock that was taken before a copy-up excludes processes that open the file after the copy-up.
void lock_and_copy_up(Side& side, const std::string& name) {
  const std::string path = side.path_of(name);
  const UniqueFd holder = side.open(name, O_RDONLY);
  if (!holder) return;
  side.did("flock", ::flock(holder.get(), LOCK_EX));
  if (const UniqueFd writer = side.open(name, O_WRONLY)) side.pwrite(writer.get(), "changed", 0);
  side.note("another: " + std::to_string(in_child([&] { return try_flock(path, LOCK_EX); })));
}

int try_record_lock(const std::string& path, int command, short type, off_t start, off_t length) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return errno;
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return ::fcntl(fd.get(), command, &lock) == 0 ? 0 : errno;
}

void record_locks(Side& side, const std::string& name) {
  const std::string path = side.path_of(name);
  const UniqueFd fd = side.open(name, O_RDWR);
  if (!fd) return;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 10;
  lock.l_len = 20;
  side.did("F_SETLK", ::fcntl(fd.get(), F_SETLK, &lock));
  const auto others = [&](off_t start, off_t length, int command) {
    side.note("another at " + std::to_string(start) + ": " + std::to_string(in_child([&] {
                return try_record_lock(path, command, F_WRLCK, start, length);
              })));
  };
  others(0, 10, F_SETLK);
  others(15, 1, F_SETLK);
  others(25, 100, F_OFD_SETLK);
  others(30, 0, F_SETLK);
  const bool found =
      in_child([&] {
        struct flock probe {};
        probe.l_type = F_WRLCK;
        const UniqueFd own(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        if (::fcntl(own.get(), F_GETLK, &probe) != 0) return 2;
        return probe.l_type == F_WRLCK && probe.l_start == 10 && probe.l_len == 20 ? 1 : 0;
      }) == 1;
  side.note(found ? "F_GETLK finds the lock" : "F_GETLK does not find the lock");
  // Closing any descriptor of the file releases the process's record locks.
  (void)UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  others(15, 1, F_SETLK);
}

int set_record(int fd, short type, off_t start, int command) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = 1;
  return ::fcntl(fd, command, &lock) == 0 ? 0 : errno;
}

// POSIX: closing any descriptor of a file releases the process's record locks on it, even if the
// descriptor was opened before the first lock. OFD locks are not released.
void close_after_record_lock(Side& side, const std::string& name, int flags, bool duplicate) {
  const std::string path = side.path_of(name);
  UniqueFd earlier = side.open(name, flags);
  if (!earlier) return;
  const UniqueFd fd = side.open(name, O_RDWR);
  UniqueFd copy(duplicate ? ::dup(earlier.get()) : -1);
  const auto other = [&](int command) {
    side.note("another: " + std::to_string(in_child(
                                [&] { return try_record_lock(path, command, F_WRLCK, 0, 1); })));
  };
  side.did("F_SETLK", set_record(fd.get(), F_WRLCK, 0, F_SETLK));
  other(F_SETLK);
  (duplicate ? copy : earlier).reset();
  other(F_SETLK);
  side.did("F_SETLK again", set_record(fd.get(), F_WRLCK, 0, F_SETLK));
  other(F_OFD_SETLK);
  side.did("unlock", set_record(fd.get(), F_UNLCK, 0, F_SETLK));
  earlier = side.open(name, flags);
  side.did("F_OFD_SETLK", set_record(fd.get(), F_WRLCK, 0, F_OFD_SETLK));
  earlier.reset();
  other(F_SETLK);
}

// Each of two processes holds a lock and requests the lock of the other process. Exactly one of the
// requests must fail with EDEADLK.
void deadlock(Side& side, const std::string& first, const std::string& second) {
  const off_t bytes[2] = {0, 1};
  const UniqueFd fds[2] = {side.open(first, O_RDWR), side.open(second, O_RDWR)};
  if (!fds[0] || !fds[1]) return;
  int ready[2];
  side.did("pipe", ::pipe2(ready, O_CLOEXEC));
  const auto take = [&](int which, int command) {
    return set_record(fds[which].get(), F_WRLCK, bytes[which], command);
  };
  side.did("F_SETLK", take(0, F_SETLK));
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::alarm(20);
    (void)take(1, F_SETLK);
    (void)::write(ready[1], "x", 1);
    ::_exit(take(0, F_SETLKW));
  }
  char byte = 0;
  (void)::read(ready[0], &byte, 1);
  const int own = take(1, F_SETLKW);
  (void)set_record(fds[0].get(), F_UNLCK, 0, F_SETLK);
  int status = 0;
  (void)::waitpid(child, &status, 0);
  const int other = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
  const bool one_is_refused = (own == EDEADLK) != (other == EDEADLK);
  side.note(one_is_refused && own + other == EDEADLK ? "one of them got EDEADLK"
                                                     : "both wait, or both were refused");
  (void)::close(ready[0]);
  (void)::close(ready[1]);
}

void deadlock_on_one_file(Side& side, const std::string& name) { deadlock(side, name, name); }

void deadlock_on_two_files(Side& side, const std::string& name) {
  (void)side.open("other", O_RDWR | O_CREAT);
  deadlock(side, name, "other");
}

void waiting_lock(Side& side, const std::string& name) {
  const std::string path = side.path_of(name);
  UniqueFd fd = side.open(name, O_RDONLY);
  if (!fd) return;
  side.did("flock", ::flock(fd.get(), LOCK_EX));
  int ready[2];
  side.did("pipe", ::pipe2(ready, O_CLOEXEC));
  const pid_t child = ::fork();
  if (child == 0) {
    const UniqueFd own(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    fd.reset();  // the inherited descriptor would keep the lock
    (void)::write(ready[1], "x", 1);
    ::_exit(::flock(own.get(), LOCK_EX) == 0 ? 0 : errno);
  }
  char byte = 0;
  (void)::read(ready[0], &byte, 1);
  fd.reset();
  int status = 0;
  (void)::waitpid(child, &status, 0);
  side.note("the waiter got " + std::to_string(WEXITSTATUS(status)));
  (void)::close(ready[0]);
  (void)::close(ready[1]);
}

// Two processes append lines to one file: every line stays intact, and none is lost.
void appending_writers(Side& side, const std::string& name) {
  constexpr int kLines = 300;
  const std::string path = side.path_of(name);
  side.did("truncate", ::truncate(path.c_str(), 0));
  const auto append = [&](char letter) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    const std::string line = std::string(60, letter) + "\n";
    for (int number = 0; number < kLines; ++number) {
      if (::write(fd.get(), line.data(), line.size()) != 61) return 1;
    }
    return 0;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(append('c'));
  side.did("append", append('p'));
  int status = 0;
  (void)::waitpid(child, &status, 0);
  side.note("child: " + std::to_string(WEXITSTATUS(status)));
  const UniqueFd fd = side.open(name, O_RDONLY);
  std::string all(static_cast<std::size_t>(2 * kLines * 61 + 1), '\0');
  const ssize_t size = side.did("read", ::read(fd.get(), all.data(), all.size()));
  std::set<std::string> lines;
  for (ssize_t at = 0; at + 61 <= size; at += 61) {
    lines.insert(all.substr(static_cast<std::size_t>(at), 61));
  }
  side.note("different lines: " + std::to_string(lines.size()));
  side.did("truncate", ::truncate(path.c_str(), 0));  // the order of the lines is undefined
}

// A child that inherits a descriptor shares its offset.
void inherited_descriptor(Side& side, const std::string& name) {
  const UniqueFd fd = side.open(name, O_RDWR);
  if (!fd) return;
  side.write(fd.get(), "parent ");
  side.note("child: " + std::to_string(in_child(
                            [&] { return ::write(fd.get(), "child", 5) == 5 ? 0 : errno; })));
  side.did("offset", ::lseek(fd.get(), 0, SEEK_CUR));
  side.contents(fd.get());
}

}  // namespace

void add_lock_cases(CaseList& list) {
  list.add_for_each("flock", file_names(), whole_file_locks);
  list.add_for_each("flock and copy-up", file_names(), lock_and_copy_up);
  list.add_for_each("record locks", file_names(), record_locks);
  for (const int flags : {O_RDONLY, O_RDWR}) {
    list.add_for_each("record locks and closing " + flag_names(flags), file_names(),
                      [=](Side& side, const std::string& name) {
                        close_after_record_lock(side, name, flags, false);
                      });
    list.add_for_each("record locks and closing a duplicate of " + flag_names(flags), file_names(),
                      [=](Side& side, const std::string& name) {
                        close_after_record_lock(side, name, flags, true);
                      });
  }
  list.add_for_each("deadlock on one file", file_names(), deadlock_on_one_file);
  list.add_for_each("deadlock on two files", file_names(), deadlock_on_two_files);
  list.add_for_each("waiting lock", file_names(), waiting_lock);
  list.add_for_each("appending writers", file_names(), appending_writers);
  list.add_for_each("inherited descriptor", file_names(), inherited_descriptor);
}

}  // namespace cacheshim::parity
