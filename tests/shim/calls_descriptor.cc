// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

namespace calls {
namespace {

void stat_descriptor(int fd) {
  struct stat plain;
  struct stat64 large;
  show_stat(CALL(fstat, fd, &plain), plain);
  show_stat(CALL(fstat64, fd, &large), large);
  show_stat(CALL(__fxstat, kStatVersion, fd, &plain), plain);
  show_stat(CALL(__fxstat64, kStatVersion, fd, &large), large);
  show_stat(CALL(fstatat, fd, "", &plain, AT_EMPTY_PATH), plain);
  show_stat(CALL(fstatat64, fd, "", &large, AT_EMPTY_PATH), large);
  show_stat(CALL(__fxstatat, kStatVersion, fd, "", &plain, AT_EMPTY_PATH), plain);
  struct statx extended;
  if (CALL(statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended) == 0) {
    say("  mode " + std::to_string(extended.stx_mode));
  }
}

void close_descriptors() {
  (void)CALL(dup2, STDIN_FILENO, 77);
  (void)CALL(dup3, STDIN_FILENO, 78, O_CLOEXEC);
  (void)CALL(dup2, -1, 77);
  (void)CALL(close, 77);
  (void)CALL(close, 77);
  (void)CALL(close, -1);
  (void)CALL(__dup2, STDIN_FILENO, 77);
  (void)CALL(__close, 77);
  (void)CALL(close_range, 77U, 90U, 0);
  (void)CALL(close_range, 90U, 77U, 0);
  (void)CALL(dup2, STDIN_FILENO, 600);
  reinterpret_cast<decltype(&::closefrom)>(find("closefrom"))(100);
  (void)CALL(close, 600);
}

void lock_file(int fd) {
  (void)CALL(flock, fd, LOCK_SH | LOCK_NB);
  (void)CALL(flock, fd, LOCK_UN);
  (void)CALL(flock, fd, 77);
  struct flock range {};
  range.l_type = F_RDLCK;
  (void)CALL(fcntl, fd, F_SETLK, &range);
  (void)CALL(fcntl64, fd, F_GETLK, &range);
  say("  type " + std::to_string(range.l_type));
  (void)CALL(fcntl, fd, F_GETFL);
  (void)CALL(fcntl64, fd, F_SETFD, FD_CLOEXEC);
  (void)CALL(fcntl, fd, F_GETFD);
  (void)CALL(fcntl, fd, -1);
}

void change_file(int fd) {
  constexpr timeval kMicros[2] = {{1, 2}, {3, 4}};
  constexpr timespec kNanos[2] = {{5, 6}, {7, 8}};
  constexpr const char* kName = "user.colour";
  (void)CALL(fchmod, fd, 0640u);
  (void)CALL(fchown, fd, ::getuid(), ::getgid());
  (void)CALL(futimes, fd, kMicros);
  (void)CALL(futimens, fd, kNanos);
  (void)CALL(fsetxattr, fd, kName, "red", 3u, 0);
  (void)CALL(fremovexattr, fd, kName);
  (void)CALL(fremovexattr, fd, kName);
}

}  // namespace

void run_descriptor_calls() {
  write_file(at("described"), "twelve bytes");
  const int fd = ::open(at("described").c_str(), O_RDONLY);
  stat_descriptor(fd);
  lock_file(fd);
  change_file(fd);
  ::close(fd);
  stat_descriptor(-1);
  lock_file(-1);
  change_file(-1);
  (void)CALL(fstat, STDIN_FILENO, nullptr);
  close_descriptors();
}

// Calls the functions that change a process's identity, root or namespaces, with arguments that
// change nothing.
void run_identity_calls() {
  (void)CALL(setuid, ::getuid());
  (void)CALL(seteuid, ::geteuid());
  (void)CALL(setreuid, ::getuid(), ::geteuid());
  (void)CALL(setresuid, ::getuid(), ::geteuid(), ::geteuid());
  (void)CALL(setfsuid, ::geteuid());
  (void)CALL(chroot, at("missing").c_str());
  (void)CALL(pivot_root, at("missing").c_str(), at("missing").c_str());
  (void)CALL(setns, -1, 0);
  (void)CALL(prctl, PR_GET_DUMPABLE, 0L, 0L, 0L, 0L);
  (void)CALL(prctl, -1, 0L, 0L, 0L, 0L);
  (void)CALL(unshare, 0);
}

}  // namespace calls
