// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstring>

namespace calls {
namespace {

constexpr long kHere = AT_FDCWD;
char room[PATH_MAX];

long address(const void* pointer) { return reinterpret_cast<long>(pointer); }

#define BY_NUMBER(number, ...) \
  (say("  " #number), CALL(syscall, long{SYS_##number} __VA_OPT__(, ) __VA_ARGS__))

void make_and_look() {
  const std::string path = at("numbers/file");
  const long file = address(path.c_str());
  (void)BY_NUMBER(mkdirat, kHere, address(at("numbers").c_str()), 0700L);
  ::close(static_cast<int>(BY_NUMBER(openat, kHere, file, long{O_CREAT | O_RDWR}, 0640L)));
  ::close(static_cast<int>(BY_NUMBER(openat, kHere, file, long{O_RDONLY})));
#ifdef SYS_openat2
  const unsigned long how[3] = {O_RDONLY, 0, 0};
  ::close(static_cast<int>(BY_NUMBER(openat2, kHere, file, address(how), long{sizeof how})));
#endif
  struct stat status;
  struct statx extended;
  struct statfs system;
  (void)BY_NUMBER(newfstatat, kHere, file, address(&status), 0L);
  (void)BY_NUMBER(statx, kHere, file, 0L, long{STATX_MODE}, address(&extended));
  (void)BY_NUMBER(statfs, file, address(&system));
  (void)BY_NUMBER(faccessat, kHere, file, long{R_OK});
  (void)BY_NUMBER(faccessat, kHere, 0L, long{R_OK});
  (void)BY_NUMBER(fchmodat, kHere, file, 0600L);
  (void)BY_NUMBER(fchownat, kHere, file, -1L, -1L, 0L);
  (void)BY_NUMBER(utimensat, kHere, file, 0L, 0L);
  (void)BY_NUMBER(truncate, file, 3L);
  (void)BY_NUMBER(setxattr, file, address("user.n"), address("v"), 1L, 0L);
  (void)BY_NUMBER(getxattr, file, address("user.n"), address(room), long{sizeof room});
  (void)BY_NUMBER(removexattr, file, address("user.n"));
}

#ifdef SYS_openat2
// Calls openat2(2) with RESOLVE_BENEATH and RESOLVE_IN_ROOT: the library must leave these paths to
// the kernel.
void open_beneath() {
  const int directory = ::open(at("numbers").c_str(), O_PATH | O_DIRECTORY);
  (void)BY_NUMBER(mkdirat, long{directory}, address("sub"), 0700L);
  for (const unsigned long resolve : {8UL, 16UL}) {  // RESOLVE_BENEATH, RESOLVE_IN_ROOT
    const unsigned long how[3] = {O_RDONLY, 0, resolve};
    for (const std::string& path : {std::string("sub/../file"), std::string("../file"),
                                    std::string("/file"), at("numbers/file")}) {
      ::close(static_cast<int>(BY_NUMBER(openat2, long{directory}, address(path.c_str()),
                                         address(how), long{sizeof how})));
    }
  }
  (void)BY_NUMBER(openat2, long{directory}, address("../numbers/file"), 0L, 24L);
  ::close(directory);
}
#endif

void move_and_remove() {
  const std::string path = at("numbers/file");
  const std::string other = at("numbers/other");
  const long from = address(path.c_str());
  const long to = address(other.c_str());
  (void)BY_NUMBER(renameat2, kHere, from, kHere, to, 0L);
  (void)BY_NUMBER(linkat, kHere, to, kHere, from, 0L);
  (void)BY_NUMBER(unlinkat, kHere, to, 0L);
  (void)BY_NUMBER(symlinkat, address("file"), kHere, to);
  (void)BY_NUMBER(readlinkat, kHere, to, address(room), long{sizeof room});
  (void)BY_NUMBER(mknodat, kHere, to, long{S_IFREG | 0600}, 0L);
  (void)BY_NUMBER(unlinkat, kHere, to, 0L);
  (void)BY_NUMBER(unlinkat, kHere, to, 0L);
}

#ifdef SYS_open
void use_old_numbers() {
  const std::string path = at("numbers/old");
  const std::string other = at("numbers/older");
  const long file = address(path.c_str());
  const long to = address(other.c_str());
  struct stat status;
  ::close(static_cast<int>(BY_NUMBER(open, file, long{O_CREAT | O_WRONLY}, 0600L)));
  ::close(static_cast<int>(BY_NUMBER(creat, file, 0600L)));
  (void)BY_NUMBER(stat, file, address(&status));
  (void)BY_NUMBER(lstat, file, address(&status));
  (void)BY_NUMBER(access, file, long{F_OK});
  (void)BY_NUMBER(chmod, file, 0640L);
  (void)BY_NUMBER(rename, file, to);
  (void)BY_NUMBER(link, to, file);
  (void)BY_NUMBER(unlink, to);
  (void)BY_NUMBER(symlink, address("old"), to);
  (void)BY_NUMBER(readlink, to, address(room), long{sizeof room});
  (void)BY_NUMBER(unlink, to);
  (void)BY_NUMBER(mkdir, to, 0700L);
  (void)BY_NUMBER(rmdir, to);
}
#endif

void go_and_ask() {
  const int home = ::open(".", O_RDONLY | O_DIRECTORY);
  (void)BY_NUMBER(chdir, address(at("numbers").c_str()));
  std::memset(room, 0, sizeof room);
  (void)BY_NUMBER(getcwd, address(room), long{sizeof room});
  say(std::string("  in ") + room);
  (void)BY_NUMBER(getcwd, 0L, long{sizeof room});
  (void)BY_NUMBER(fchdir, long{home});
  ::close(home);
}

void exec_by_number() {
  const std::string path = at("numbers/script");
  write_file(path, "#!/bin/sh\nexit 5\n");
  (void)::chmod(path.c_str(), 0700);
  const char* const arguments[] = {"script", nullptr};
  const pid_t child = ::fork();
  if (child == 0) {
    (void)BY_NUMBER(execve, address(path.c_str()), address(arguments), address(environ));
    ::_exit(1);
  }
  int status = 0;
  say(::waitpid(child, &status, 0) == child ? "  ended " + std::to_string(status) : "no child");
}

}  // namespace

void run_syscall_calls() {
  make_and_look();
#ifdef SYS_openat2
  open_beneath();
#endif
  move_and_remove();
#ifdef SYS_open
  use_old_numbers();
#endif
  go_and_ask();
  if (starts_programs()) exec_by_number();
  say(::syscall(SYS_getppid) == ::getppid() ? "  the parent" : "  a stranger");
  (void)CALL(syscall, 100000L);
  (void)CALL(syscall, -1L);
}

}  // namespace calls
