// SPDX-License-Identifier: Apache-2.0
//
// If not even the first component of the mount point exists, the process replaces its root directory,
// as bubblewrap does. A tmpfs becomes the root, and every entry of the old root is bound into it, next
// to the new directory. The tmpfs is then made read-only, so that no process writes to a root
// directory that disappears with the namespace.
#include "cli/mounting/private_namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/failure.h"
#include "common/exit_codes.h"
#include "common/unique_fd.h"

namespace cacheshim::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOldRoot = "/.cacheshim-old-root";

[[noreturn]] void fail(const std::string& what, int error) {
  throw Failure(kExitUnavailable,
                fmt::format("cannot set up a private mount: {}: {}; the command was not run", what,
                            std::generic_category().message(error)));
}

void require(bool done, const std::string& what) {
  if (!done) fail(what, errno);
}

void write_file(const char* path, const std::string& text) {
  const UniqueFd fd(::open(path, O_WRONLY | O_CLOEXEC));
  require(fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()),
          fmt::format("writing {}", path));
}

void unshare_namespaces() {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (uid == 0 && ::unshare(CLONE_NEWNS) == 0) return;
  require(::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0,
          "this system refuses user namespaces (unshare)");
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", fmt::format("{} {} 1", uid, uid));
  write_file("/proc/self/gid_map", fmt::format("{} {} 1", gid, gid));
}

// Returns a directory for mounting a file system temporarily.
const char* find_scaffold() {
  for (const char* path : {"/tmp", "/run", "/mnt"}) {
    if (fs::is_directory(path)) return path;
  }
  fail("no directory /tmp to work in", ENOENT);
}

void bind_old_entry(const fs::directory_entry& entry) {
  const std::string source = entry.path();
  const std::string target = fmt::format("/{}", entry.path().filename().string());
  std::error_code error;
  if (entry.is_symlink(error)) {
    fs::copy_symlink(source, target, error);
    if (error) fail(fmt::format("making the link '{}'", target), error.value());
    return;
  }
  if (entry.is_directory(error)) {
    require(::mkdir(target.c_str(), 0755) == 0, fmt::format("making '{}'", target));
  } else {
    const UniqueFd file(::open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    require(static_cast<bool>(file), fmt::format("making '{}'", target));
  }
  require(::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0,
          fmt::format("binding '{}'", target));
}

void replace_root_with(const std::string& new_directory) {
  constexpr unsigned long kMountFlags = MS_NOSUID | MS_NODEV;
  const char* scaffold = find_scaffold();
  require(::mount("cacheshim-root", scaffold, "tmpfs", kMountFlags, "mode=0755") == 0,
          "mounting a tmpfs");
  const std::string put_old = std::string(scaffold) + kOldRoot;
  require(::mkdir(put_old.c_str(), 0700) == 0, "making the old root's directory");
  require(::syscall(SYS_pivot_root, scaffold, put_old.c_str()) == 0, "changing the root directory");
  require(::chdir("/") == 0, "entering the new root directory");
  for (const fs::directory_entry& entry : fs::directory_iterator(kOldRoot)) bind_old_entry(entry);
  std::error_code error;
  fs::create_directories(new_directory, error);
  if (error) fail(fmt::format("making '{}'", new_directory), error.value());
  require(::umount2(kOldRoot, MNT_DETACH) == 0, "leaving the old root directory");
  require(::rmdir(kOldRoot) == 0, "removing the old root's directory");
  require(
      ::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kMountFlags, nullptr) == 0,
      "closing the new root directory");
}

void ensure_mount_point(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return;
  if (fs::exists(status)) {
    throw Failure(
        kExitUnavailable,
        fmt::format("mount point '{}' is not a directory; the command was not run", path));
  }
  fs::path top = path;
  while (top.parent_path() != "/" && top.has_relative_path()) top = top.parent_path();
  if (fs::exists(top, error)) {
    throw Failure(
        kExitUnavailable,
        fmt::format("mount point '{}' does not exist; make the directory, or name another "
                    "one with --mount; the command was not run",
                    path));
  }
  replace_root_with(path);
}

}  // namespace

void enter_private_namespace(const std::string& mount_point) {
  std::error_code error;
  const fs::path cwd = fs::current_path(error);
  unshare_namespaces();
  // Slave, not private, because an automounter's mounts must still appear here.
  require(::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0,
          "keeping mounts to ourselves");
  ensure_mount_point(mount_point);
  if (!cwd.empty())
    require(::chdir(cwd.c_str()) == 0, fmt::format("returning to '{}'", cwd.string()));
}

bool cover_run_dir(const std::string& run_dir) {
  if (run_dir.empty()) return false;
  const fs::path above = fs::path(run_dir).parent_path();
  std::error_code error;
  // The directory remains for later daemons: with a caller's umask of 0, every user could change it.
  const mode_t before = ::umask(022);
  fs::create_directories(above, error);
  (void)::umask(before);
  return ::mount("cacheshim-run", above.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") == 0;
}

}  // namespace cacheshim::cli
