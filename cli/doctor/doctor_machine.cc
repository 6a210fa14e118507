// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <optional>
#include <system_error>

#include "cli/doctor/doctor.h"
#include "cli/mounting/dead_mount.h"
#include "common/mount_info.h"
#include "common/names.h"
#include "common/unique_fd.h"
#include "store/sys/system_calls.h"
#include "store/sys/sys.h"

namespace cacheshim::cli {
namespace {

constexpr const char* kDevice = "/dev/fuse";
constexpr int kReplyTimeoutMs = 5000;
constexpr uid_t kNobody = 65534;

std::string reason(int error) { return std::generic_category().message(error); }

// Runs `body` in a child process and returns the child's exit status, or 0 if a signal killed the child. Returns
// nothing if no child can be created, or if the child does not exit within kReplyTimeoutMs. A child that waits for a
// file system may survive SIGKILL until it gets a reply, so this function does not wait for its end. The child closes
// its standard streams first, so that it does not keep this program's output open.
std::optional<int> run_in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)sys::close_range(STDIN_FILENO, STDERR_FILENO, 0);
    ::_exit(body());
  }
  if (child < 0) return std::nullopt;
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  struct pollfd event = {handle.get(), POLLIN, 0};
  if (handle && ::poll(&event, 1, kReplyTimeoutMs) == 0) {
    (void)::kill(child, SIGKILL);  // the child exits when the file system answers
    return std::nullopt;
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

void check_device(Findings& findings) {
  constexpr const char* kCheck = "fuse device";
  constexpr const char* kLoad =
      "load the kernel's module ('modprobe fuse'); in a container, start it with --device /dev/fuse";
  struct stat status {};
  if (::stat(kDevice, &status) != 0) {
    return findings.problem(kCheck, kDevice, reason(errno) + ": nothing can be mounted", kLoad);
  }
  const UniqueFd device(::open(kDevice, O_RDWR | O_CLOEXEC));
  const unsigned mode = status.st_mode & 0777;
  const std::string mode_text = fmt::format("mode {:04o}", mode);
  constexpr const char* kOpenUp =
      "'chmod 0666 /dev/fuse', as udev's rule does, if users are to mount for themselves";
  if (!device && errno == EACCES) {
    return findings.warn(kCheck, kDevice,
                         mode_text + ": this user cannot mount, which 'cacheshim run --store' requires",
                         kOpenUp);
  }
  if (!device) {
    return findings.problem(kCheck, kDevice,
                            reason(errno) + " when it is opened: nothing can be mounted", kLoad);
  }
  if ((mode & 0666) != 0666) {
    return findings.warn(
        kCheck, kDevice,
        mode_text + ": not every user can mount, which 'cacheshim run --store' requires",
        kOpenUp);
  }
  findings.ok(kCheck, kDevice, mode_text + ", can be opened");
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool allows_others(const char* path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("user_allow_other")) return true;
  }
  return false;
}

// Mounting does not need fusermount3: the program itself mounts, in a user namespace if it is not
// root. Users need fusermount3 only to unmount the mount of a dead daemon.
void check_fusermount(Findings& findings) {
  constexpr const char* kCheck = "fusermount3";
  constexpr const char* kConf = "/etc/fuse.conf";
  const std::string others =
      fmt::format("user_allow_other is {} in {}, which cacheshim does not need",
                  allows_others(kConf) ? "set" : "not set", kConf);
  for (const char* const path :
       {"/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"}) {
    struct stat status {};
    if (::stat(path, &status) != 0) continue;
    const bool is_for_users = (status.st_mode & S_ISUID) != 0 && status.st_uid == 0;
    return findings.ok(
        kCheck, path,
        fmt::format("mode {:04o}{}; {}", status.st_mode & 07777,
                    is_for_users ? "" : ", of no use to users: not setuid root", others));
  }
  findings.ok(kCheck, "", "not installed; cacheshim does not need it; " + others);
}

void check_rootless(Findings& findings) {
  constexpr const char* kCheck = "rootless mounts";
  constexpr const char* kRestricted = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
  constexpr const char* kMeaning = ": 'cacheshim run --store' works only for root";
  if (first_line(kRestricted) == "1") {
    return findings.warn(
        kCheck, kRestricted, std::string("AppArmor denies user namespaces to users") + kMeaning,
        "'sysctl kernel.apparmor_restrict_unprivileged_userns=0', or a profile for cacheshim");
  }
  const auto error = run_in_child([] {
    if (::geteuid() == 0)
      (void)!::setresuid(kNobody, kNobody, kNobody);  // fails if kNobody is not mapped
    return ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 ? 0 : errno;
  });
  if (error.value_or(0) == 0) return findings.ok(kCheck, "", "users may create user namespaces");
  findings.warn(kCheck, "",
                fmt::format("a user cannot create a user namespace ({}){}", reason(*error), kMeaning),
                "'sysctl user.max_user_namespaces=65536', on Debian also "
                "kernel.unprivileged_userns_clone=1; in a container, a seccomp profile that allows "
                "unshare");
}

void check_kernel(Findings& findings) {
  constexpr const char* kCheck = "kernel";
  struct utsname name {};
  (void)::uname(&name);  // cannot fail for a valid buffer
  int major = 0;
  int minor = 0;
  (void)std::sscanf(name.release, "%d.%d", &major, &minor);
  const auto has = [&](int wanted_major, int wanted_minor) {
    return major > wanted_major || (major == wanted_major && minor >= wanted_minor);
  };
  const auto top = sys::open_path("/", O_RDONLY | O_DIRECTORY);
  const auto below =
      top ? sys::open_beneath(top->get(), "proc", O_PATH) : Result<UniqueFd>(top.error());
  const std::string release = fmt::format("Linux {}", name.release);
  if (!below) {
    return findings.problem(
        kCheck, "",
        fmt::format("{}: openat2(2) fails ({}), which the daemon needs", release,
                    reason(below.error().code())),
        "Linux 5.15 or newer; in a container, a seccomp profile that allows it");
  }
  const std::string features =
      fmt::format("{}: files of layers {}, raw changes {}", release,
                  has(6, 9) ? "can be read and written by the kernel itself"
                            : "go through the daemon (passthrough needs Linux 6.9)",
                  has(5, 9) ? "can be watched by fanotify" : "are watched by inotify at best");
  findings.ok(kCheck, "", features);
}

std::string advice_for(const MountEntry& mount, bool is_dead) {
  if (mount.type == kFilesystemType) {
    return is_dead ? dead_mount_advice(mount.path) : hung_mount_advice(mount.path);
  }
  return fmt::format("free it with 'umount -l {0}', as its user 'fusermount3 -uz {0}'", mount.path);
}

void check_dead_mounts(Findings& findings) {
  constexpr const char* kCheck = "dead mounts";
  std::size_t asked = 0;
  std::size_t bad = 0;
  for (const MountEntry& mount : read_mounts()) {
    if (!mount.type.starts_with("fuse") || mount.type == "fusectl") continue;
    ++asked;
    const Reply reply = probe_file_system(mount.path);
    if (reply == Reply::kGood) continue;
    ++bad;
    const bool is_dead = reply == Reply::kDead;
    const std::string what =
        is_dead ? "its daemon is dead; its users get 'Transport endpoint is not connected'"
                : fmt::format("does not answer within {} s", kReplyTimeoutMs / 1000);
    const std::string advice = advice_for(mount, is_dead);
    if (mount.type == kFilesystemType && is_dead) {
      findings.problem(kCheck, mount.path, what, advice);
    } else {
      findings.warn(kCheck, mount.path, fmt::format("{} ({})", what, mount.type), advice);
    }
  }
  if (bad == 0) findings.ok(kCheck, "", fmt::format("none among {} FUSE mounts", asked));
}

}  // namespace

Reply probe_file_system(const std::string& path) {
  const auto reply = run_in_child([&] { return is_dead_mount(path) ? 1 : 0; });
  if (!reply) return Reply::kNone;
  return *reply == 1 ? Reply::kDead : Reply::kGood;
}

void check_machine(Findings& findings) {
  check_kernel(findings);
  check_device(findings);
  check_fusermount(findings);
  check_rootless(findings);
  check_dead_mounts(findings);
}

}  // namespace cacheshim::cli
