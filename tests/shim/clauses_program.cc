// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

// shim_clauses WHAT DIRECTORY [ARGUMENT]: uses the cache at DIRECTORY in one of the situations that a preloaded library
// must not disturb. Exits with 0 on success. On an error, prints a line and exits with 1 or, in situations without a
// usable stderr, exits with another status.
namespace {

std::string directory;
std::string argument;

std::string in_directory(const char* name) { return directory + "/" + name; }

[[noreturn]] void fail(const char* what) {
  const int error = errno;
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(error));
  ::_exit(1);
}

void check(bool good, const char* what) {
  if (!good) fail(what);
}

// Creates and stats a file named after the thread. Returns false on any error, or if errno has
// changed. Apart from snprintf, makes only async-signal-safe calls, because signal handlers and
// forked children call this function.
bool use_cache() {
  char name[4096];
  std::snprintf(name, sizeof name, "%s/used-%ld", directory.c_str(), long{::syscall(SYS_gettid)});
  errno = 4242;
  const int fd = ::open(name, O_CREAT | O_RDWR, 0600);
  if (fd < 0 || errno != 4242) return false;
  struct stat status;
  const bool good = ::stat(name, &status) == 0 && ::access(name, R_OK) == 0 && errno == 4242;
  ::close(fd);
  return good;
}

bool use_cache_much() {
  for (int i = 0; i < 200; ++i) {
    if (!use_cache()) return false;
  }
  return true;
}

int wait_for(pid_t child) {
  int status = -1;
  while (::waitpid(child, &status, 0) == -1 && errno == EINTR) {
  }
  return status;
}

std::atomic<int> handled{0};
std::atomic<bool> failed_in_handler{false};

void on_signal(int) {
  const int before = errno;
  if (!use_cache()) failed_in_handler = true;
  errno = before;
  ++handled;
}

void in_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  check(::sigaction(SIGALRM, &action, nullptr) == 0, "sigaction");
  const itimerval often{{0, 200}, {0, 200}};
  check(::setitimer(ITIMER_REAL, &often, nullptr) == 0, "setitimer");
  while (handled < 300) {
    char path[4096];
    check(::getcwd(path, sizeof path) != nullptr, "getcwd");
    const int fd = ::open(in_directory("main").c_str(), O_CREAT | O_WRONLY, 0600);
    check(fd >= 0, "open");
    ::close(fd);
    check(::rename(in_directory("main").c_str(), in_directory("moved").c_str()) == 0, "rename");
  }
  const itimerval never{};
  check(::setitimer(ITIMER_REAL, &never, nullptr) == 0, "setitimer");
  check(!failed_in_handler, "in a handler");
}

std::atomic<bool> stopping{false};

void* keep_using(void*) {
  while (!stopping) {
    if (!use_cache()) fail("in a thread");
  }
  return nullptr;
}

void fork_among_threads() {
  pthread_t threads[8];
  for (pthread_t& thread : threads) {
    check(::pthread_create(&thread, nullptr, keep_using, nullptr) == 0, "pthread_create");
  }
  for (int i = 0; i < 30; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(use_cache() ? 0 : 1);
    check(wait_for(child) == 0, "in a child");
  }
  stopping = true;
  for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
}

// A vfork child shares its parent's memory. The child changes its working directory; the parent's
// working directory must not change.
void vfork_child() {
  check(::mkdir(in_directory("there").c_str(), 0700) == 0, "mkdir");
  check(::chdir(directory.c_str()) == 0, "chdir");
  // With the library, the directory exists below the mount: the child then uses its path there.
  const std::string by_mount = std::string(std::getenv("CACHESHIM_MOUNT")) + "/triton/there";
  const bool has_both = ::access(by_mount.c_str(), F_OK) == 0;
  const std::string there = has_both ? by_mount : in_directory("there");
  const char* const words[] = {"sh", "-c", "echo > made-there", nullptr};
  const pid_t child = ::vfork();
  if (child == 0) {
    if (::chdir(there.c_str()) == 0) ::execv("/bin/sh", const_cast<char* const*>(words));
    ::_exit(1);
  }
  check(wait_for(child) == 0, "in a child");
  char path[4096];
  check(::getcwd(path, sizeof path) != nullptr && path == directory, "the parent has moved");
  check(::access("there/made-there", F_OK) == 0, "access");
}

void spawned_child() {
  char name[] = "sh";
  char option[] = "-c";
  std::string script = "echo > '" + in_directory("spawned") + "'";
  char* const words[] = {name, option, script.data(), nullptr};
  pid_t child;
  check(::posix_spawnp(&child, "sh", nullptr, nullptr, words, environ) == 0, "posix_spawnp");
  check(wait_for(child) == 0, "in a child");
  check(::access(in_directory("spawned").c_str(), F_OK) == 0, "access");
}

// Closes descriptors 0 to 2. The next opens must get these numbers: the library must hold none of
// them.
void without_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) ::close(fd);
  for (int fd = 0; fd < 3; ++fd) {
    if (::open(in_directory("low").c_str(), O_CREAT | O_RDWR, 0600) != fd) ::_exit(10 + fd);
  }
  if (!use_cache_much()) ::_exit(2);
  if (::open(in_directory("low").c_str(), O_RDONLY) != 3) ::_exit(13);
  struct stat status;
  if (::stat(in_directory("low").c_str(), &status) != 0 || status.st_size != 0) ::_exit(14);
}

// When the mount disappears, descriptor 2 is a data file of the program. The library must not write
// its message there.
void data_at_stderr() {
  ::close(2);
  if (::open(argument.c_str(), O_CREAT | O_RDWR, 0600) != 2) ::_exit(10);
  (void)::unlink(std::getenv("TEST_MOUNTINFO"));
  const std::string mount = std::getenv("CACHESHIM_MOUNT");
  if (::rename(mount.c_str(), (mount + ".away").c_str()) != 0) ::_exit(11);
  if (::mkdir(in_directory("x").c_str(), 0700) != 0) ::_exit(12);
  struct stat status;
  if (::stat(argument.c_str(), &status) != 0 || status.st_size != 0) ::_exit(13);
}

void after_close_range() {
  ::closefrom(3);
  check(use_cache_much(), "after closefrom");
  check(::syscall(SYS_close_range, 3u, ~0u, 0u) == 0, "close_range");
  check(use_cache_much(), "after close_range");
  char path[4096];
  check(::getcwd(path, sizeof path) != nullptr, "getcwd");
}

// Loads a second copy of the library into a namespace with its own libc. Uses the cache through
// both copies.
void in_a_namespace() {
  void* const second = ::dlmopen(LM_ID_NEWLM, argument.c_str(), RTLD_NOW);
  if (second == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
  check(second != nullptr, "dlmopen");
  using Open = int (*)(const char*, int, ...);
  const Open open_there = reinterpret_cast<Open>(::dlsym(second, "open"));
  const int fd = open_there(in_directory("there").c_str(), O_CREAT | O_WRONLY, 0600);
  check(fd >= 0, "open in the namespace");
  ::close(fd);
  check(use_cache_much(), "beside a namespace");
}

void in_a_chroot() {
  check(::chroot(argument.c_str()) == 0 && ::chdir("/") == 0, "chroot");
  check(::access(in_directory("x").c_str(), F_OK) == -1 && errno == ENOENT, "an empty chroot");
  check(::mkdir(in_directory("x").c_str(), 0700) == 0, "mkdir");
  check(use_cache_much(), "in a chroot");
}

// Installs a seccomp filter that kills the process for system calls that a library might make, but
// this program does not.
void forbid_calls() {
  const unsigned forbidden[] = {SYS_statx,
                                SYS_gettid,
                                SYS_tgkill,
                                SYS_memfd_create,
                                SYS_socket,
                                SYS_fstatfs,
                                SYS_name_to_handle_at,
#ifdef SYS_openat2
                                SYS_openat2,
#endif
#ifdef SYS_faccessat2
                                SYS_faccessat2,
#endif
#ifdef SYS_close_range
                                SYS_close_range,
#endif
                                SYS_membarrier,

                                SYS_inotify_init1,
                                SYS_readlinkat,
                                SYS_statfs,
                                SYS_fork};
  constexpr std::size_t kCount = sizeof forbidden / sizeof *forbidden;
  sock_filter code[kCount + 3];
  const auto load = static_cast<unsigned short>(BPF_LD | BPF_W | BPF_ABS);
  const auto equal = static_cast<unsigned short>(BPF_JMP | BPF_JEQ | BPF_K);
  const auto end = static_cast<unsigned short>(BPF_RET | BPF_K);
  code[0] = {load, 0, 0, static_cast<unsigned>(offsetof(seccomp_data, nr))};
  for (std::size_t i = 0; i < kCount; ++i) {
    code[i + 1] = {equal, static_cast<unsigned char>(kCount - i), 0, forbidden[i]};
  }
  code[kCount + 1] = {end, 0, 0, SECCOMP_RET_ALLOW};
  code[kCount + 2] = {end, 0, 0, SECCOMP_RET_KILL_PROCESS};
  const sock_fprog filter{static_cast<unsigned short>(kCount + 3), code};
  check(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  check(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "seccomp");
}

void in_a_filter() {
  forbid_calls();
  const int fd = ::open(in_directory("filtered").c_str(), O_CREAT | O_WRONLY, 0600);
  check(fd >= 0, "open");
  ::close(fd);
  check(::rename(in_directory("filtered").c_str(), in_directory("moved").c_str()) == 0, "rename");
  check(::mkdir(in_directory("sub").c_str(), 0700) == 0, "mkdir");
  check(::chdir(in_directory("sub").c_str()) == 0, "chdir");
  char path[4096];
  check(::getcwd(path, sizeof path) != nullptr && path == in_directory("sub"), "getcwd");
  check(::access("../moved", F_OK) == 0, "access");
  // A program that starts under this filter must run, although the filter forbids calls that the
  // library's constructor makes.
  const char* const words[] = {"sh", "-c", "exit 0", nullptr};
  if (const pid_t child = ::vfork(); child == 0) {
    ::execv("/bin/sh", const_cast<char* const*>(words));
    ::_exit(1);
  } else {
    check(wait_for(child) == 0, "a filtered program");
  }
}

void without_descriptors() {
  const rlimit three{3, 3};
  check(::setrlimit(RLIMIT_NOFILE, &three) == 0, "setrlimit");
  errno = 0;
  check(::open(in_directory("x").c_str(), O_CREAT | O_WRONLY, 0600) == -1 && errno == EMFILE,
        "open");
  check(::mkdir(in_directory("made").c_str(), 0700) == 0, "mkdir");
  check(::rename(in_directory("made").c_str(), in_directory("moved").c_str()) == 0, "rename");
  check(::chdir(in_directory("moved").c_str()) == 0, "chdir");
  struct stat status;
  check(::stat("../moved", &status) == 0, "stat");
  errno = 0;
  check(::dlopen(in_directory("none.so").c_str(), RTLD_NOW) == nullptr, "dlopen");
  check(::access(in_directory("none").c_str(), F_OK) == -1 && errno == ENOENT, "access");
  const char* const words[] = {"x", nullptr};
  check(::execv(in_directory("none").c_str(), const_cast<char* const*>(words)) == -1, "execv");
}

// Verifies that the calls in the constructor of another library (early_library.cc) have succeeded,
// then uses the cache.
void as_found_early() {
  const char* const found = std::getenv("TEST_EARLY");
  check(found != nullptr && std::strcmp(found, "good") == 0, "before constructors");
  check(use_cache_much(), "after constructors");
}

// Calls the exec function that `way` names. Returns only if `way` names none or the call fails.
void exec_by(const std::string& way, char* program, char* const words[], char* const clean[]) {
  char* const none = nullptr;
  if (way == "execve") ::execve(program, words, clean);
  if (way == "execvpe") ::execvpe("env", words, clean);
  if (way == "execle") ::execle(program, program, none, clean);
  if (way == "execv") ::execv(program, words);
  if (way == "execvp") ::execvp("env", words);
  if (way == "execl") ::execl(program, program, none);
  if (way == "execlp") ::execlp("env", program, none);
  if (way == "execveat") ::execveat(AT_FDCWD, program, words, clean, 0);
  if (way == "fexecve") ::fexecve(::open(program, O_RDONLY | O_CLOEXEC), words, clean);
  if (way == "syscall") ::syscall(SYS_execve, program, words, clean);
}

// Starts env(1) with an environment without LD_PRELOAD, by the call that the argument names.
void child_by_each_way() {
  char program[] = "/usr/bin/env";
  char* const words[] = {program, nullptr};
  std::string given[] = {
      "PATH=/usr/bin", std::string("TEST_MOUNTINFO=") + std::getenv("TEST_MOUNTINFO"),
      std::string("TEST_CGROUP=") + std::getenv("TEST_CGROUP"), "TEST_RUN=/nowhere"};
  char* const clean[] = {given[0].data(), given[1].data(), given[2].data(), given[3].data(),
                         nullptr};
  pid_t child = 0;
  const std::string& way = argument;
  if (way == "posix_spawn" || way == "posix_spawnp") {
    const auto spawn = way == "posix_spawn" ? ::posix_spawn : ::posix_spawnp;
    check(
        spawn(&child, way == "posix_spawn" ? program : "env", nullptr, nullptr, words, clean) == 0,
        "spawn");
    check(wait_for(child) == 0, "in a child");
    return;
  }
  if (way == "system" || way == "popen" || way == "execv" || way == "execvp" || way == "execl" ||
      way == "execlp") {
    environ = const_cast<char**>(clean);
  }
  if (way == "system") check(::system(program) == 0, "system");
  if (way == "popen") check(::pclose(::popen(program, "w")) == 0, "popen");
  if (way == "system" || way == "popen") {
    check(environ == clean, "the environment has changed");
    return;
  }
  exec_by(way, program, words, clean);
  fail(way.c_str());
}

void plainly() { check(use_cache_much(), "in the plain case"); }

constexpr struct {
  const char* name;
  void (*run)();
} kSituations[] = {
    {"plain", plainly},
    {"signals", in_signal_handlers},
    {"fork", fork_among_threads},
    {"vfork", vfork_child},
    {"spawn", spawned_child},
    {"closed", without_standard_descriptors},
    {"data-at-stderr", data_at_stderr},
    {"close-range", after_close_range},
    {"namespace", in_a_namespace},
    {"chroot", in_a_chroot},
    {"filter", in_a_filter},
    {"no-descriptors", without_descriptors},
    {"early", as_found_early},
    {"child", child_by_each_way},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  directory = argv[2];
  if (argc > 3) argument = argv[3];
  for (const auto& situation : kSituations) {
    if (std::strcmp(situation.name, argv[1]) != 0) continue;
    situation.run();
    return 0;
  }
  return 2;
}
