// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

// gone_program MOUNT MOUNTINFO HOME HOW: uses its cache, makes the mount disappear, continues, and
// prints the result of each call. HOW is "unmounted" (the directory is empty, and mountinfo lists
// no mount), "dead" (see dead_mount.cc), "dead for relative paths" (the same, but uses only
// relative paths afterwards) or "there" (the mount stays).
namespace {

void say(const char* name, int result) {
  std::printf("%s %s\n", name, result >= 0 ? "ok" : std::to_string(errno).c_str());
  std::fflush(stdout);
}

int make_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  if (fd >= 0) ::close(fd);
  return fd;
}

int make_file_by_number(const std::string& path) {
  open_how how{};
  how.flags = O_CREAT | O_WRONLY;
  how.mode = 0600;
  return static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how));
}

void lose(const std::string& mount, const std::string& mountinfo, const std::string& how) {
  if (how.starts_with("dead")) ::setenv("TEST_DEAD_MOUNT", mount.c_str(), 1);
  if (how != "unmounted") return;
  (void)::truncate(mountinfo.c_str(), 0);
  const std::string away = mount + ".away";
  if (::rename(mount.c_str(), away.c_str()) != 0 || ::mkdir(mount.c_str(), 0500) != 0) std::abort();
}

int go_on_by_relative_paths(const std::string& home) {
  const std::string directory = home + "/.triton";
  if (::mkdir(directory.c_str(), 0700) != 0 || ::chdir(directory.c_str()) != 0) std::abort();
  say("relative", ::mkdir("cache/K", 0700));
  say("and again", make_file("cache/K/f"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string mount = argv[1];
  const std::string cache = std::string(argv[3]) + "/.triton/cache";
  say("before", ::mkdir((cache + "/before").c_str(), 0700));
  // pathconf returns -1 for "no limit" and keeps errno. The library must not mistake the ENOTCONN of an earlier call
  // for a lost mount.
  errno = ENOTCONN;
  (void)::pathconf((cache + "/before").c_str(), _PC_PRIO_IO);
  lose(mount, argv[2], argv[4]);
  if (argv[4] == std::string("dead for relative paths")) return go_on_by_relative_paths(argv[3]);
  say("look", ::access((cache + "/before").c_str(), F_OK));
  if (argv[4] == std::string("unmounted")) say("openat2", make_file_by_number(cache + "/n"));
  say("missing parent", ::mkdir((cache + "/x/y").c_str(), 0700));
  say("default path", ::mkdir((cache + "/d").c_str(), 0700));
  say("mount path", ::mkdir((mount + "/triton/m").c_str(), 0700));
  say("view path", make_file(mount + "/.jobs/j1/triton/v"));
  say("rename", ::rename((cache + "/d").c_str(), (mount + "/triton/r").c_str()));
  std::string name = mount + "/triton/tXXXXXX";
  say("mkstemp", ::mkstemp(name.data()));
  std::printf("named %s\n", name.substr(0, name.size() - 6).c_str());
  say("unknown name", ::mkdir((mount + "/unknown").c_str(), 0700) == 0 ? 0 : -1);
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(make_file(cache + "/c") >= 0 ? 0 : 1);
  int status = 1;
  (void)::waitpid(child, &status, 0);
  say("child", status == 0 ? 0 : -1);
  if (std::getenv("CACHESHIM_STRICT") == nullptr) {
    say("program", ::system("mkdir \"$HOME/.triton/cache/p\"") == 0 ? 0 : -1);
  }
  return 0;
}
