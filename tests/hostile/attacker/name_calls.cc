// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <climits>

#include "tests/hostile/attacker/calls.h"

namespace attacker {
namespace {

constexpr std::size_t kAttributeBytes = 256;

int open_flags(Random& random) {
  return random.pick({O_RDONLY, O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_PATH}) | O_NONBLOCK |
         random.flags({O_CREAT, O_TRUNC, O_APPEND}) |
         (random.one_in(6)
              ? random.flags({O_EXCL, O_DIRECTORY, O_NOFOLLOW, O_DIRECT, O_SYNC, O_NOATIME})
              : 0);
}

mode_t mode(Random& random) {
  if (!random.one_in(4)) return 0755;  // most directories stay usable
  return random.pick<mode_t>({0644, 0600, 0777, 0000, 0444, 06777, 01755, 0111});
}

void open_name(World& world) {
  const auto [directory, path] = world.place();
  world.keep(::openat(directory, path.c_str(), open_flags(world.random()), mode(world.random())));
}

void open_restricted(World& world) {
  const auto [directory, path] = world.place();
  Random& random = world.random();
  open_how how{};
  how.flags = static_cast<unsigned>(open_flags(random));
  how.mode = (how.flags & O_CREAT) != 0 ? 0644 : 0;
  how.resolve = static_cast<unsigned>(
      random.flags({RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS, RESOLVE_CACHED}));
  world.keep(static_cast<int>(::syscall(SYS_openat2, directory, path.c_str(), &how, sizeof how)));
}

void open_directory(World& world) {
  world.keep(::open(world.path().c_str(), O_RDONLY | O_DIRECTORY));
}

void open_unnamed(World& world) {
  world.keep(
      ::open(world.path().c_str(), O_TMPFILE | O_RDWR | world.random().flags({O_EXCL}), 0600));
}

void make_directory(World& world) {
  const auto [directory, path] = world.place();
  (void)::mkdirat(directory, path.c_str(), mode(world.random()));
}

void make_node(World& world) {
  const auto [directory, path] = world.place();
  const mode_t kind =
      world.random().pick<mode_t>({S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, 0});
  (void)::mknodat(directory, path.c_str(), kind | mode(world.random()), 0);
}

void remove_name(World& world) {
  const auto [directory, path] = world.place();
  (void)::unlinkat(directory, path.c_str(), 0);
}

void remove_directory(World& world) {
  const auto [directory, path] = world.place();
  (void)::unlinkat(directory, path.c_str(), AT_REMOVEDIR);
}

void rename_name(World& world) {
  const auto [from, old_path] = world.place();
  const auto [to, new_path] = world.place();
  (void)::renameat(from, old_path.c_str(), to, new_path.c_str());
}

void rename_specially(World& world) {
  const auto [from, old_path] = world.place();
  const auto [to, new_path] = world.place();
  const int flags = world.random().pick<int>({RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT,
                                              RENAME_NOREPLACE | RENAME_EXCHANGE, 0x100});
  (void)::renameat2(from, old_path.c_str(), to, new_path.c_str(), static_cast<unsigned>(flags));
}

void link_name(World& world) {
  const auto [from, old_path] = world.place();
  const auto [to, new_path] = world.place();
  (void)::linkat(from, old_path.c_str(), to, new_path.c_str(),
                 world.random().pick({0, 0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH}));
}

void link_file(World& world) {
  const std::string file = "/proc/self/fd/" + std::to_string(world.file());
  const auto [to, path] = world.place();
  (void)::linkat(AT_FDCWD, file.c_str(), to, path.c_str(), AT_SYMLINK_FOLLOW);
}

void make_symlink(World& world) {
  const std::string target = world.random().one_in(2) ? world.path() : world.name();
  const auto [directory, path] = world.place();
  (void)::symlinkat(
      world.random().one_in(10) ? std::string(PATH_MAX - 1, 'l').c_str() : target.c_str(),
      directory, path.c_str());
}

void read_symlink(World& world) {
  const auto [directory, path] = world.place();
  (void)::readlinkat(directory, path.c_str(), world.buffer(), world.size());
}

void change_mode(World& world) {
  const auto [directory, path] = world.place();
  (void)::fchmodat(directory, path.c_str(), mode(world.random()), 0);
}

void change_owner(World& world) {
  const auto [directory, path] = world.place();
  const auto owner = world.random().pick<uid_t>({::getuid(), 0, 20001, static_cast<uid_t>(-1)});
  (void)::fchownat(directory, path.c_str(), owner, owner, AT_SYMLINK_NOFOLLOW);
}

void change_times(World& world) {
  const auto [directory, path] = world.place();
  Random& random = world.random();
  const timespec times[2] = {
      {static_cast<time_t>(random.number()), random.pick<long>({0, UTIME_NOW, UTIME_OMIT})},
      {1, random.pick<long>({999'999'999, UTIME_NOW, UTIME_OMIT, -1})}};
  (void)::utimensat(directory, path.c_str(), times, random.pick({0, AT_SYMLINK_NOFOLLOW}));
}

void truncate_name(World& world) { (void)::truncate(world.path().c_str(), world.offset()); }

void stat_name(World& world) {
  const auto [directory, path] = world.place();
  struct statx out;
  const int flags = world.random().flags({AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_STATX_FORCE_SYNC});
  (void)::statx(directory, path.c_str(), flags, STATX_ALL, &out);
}

void check_access(World& world) {
  const auto [directory, path] = world.place();
  (void)::faccessat(directory, path.c_str(), world.random().pick({F_OK, R_OK, W_OK | X_OK}),
                    AT_EACCESS);
}

void change_directory(World& world) {
  if (world.random().one_in(2)) {
    (void)!::chdir(world.path().c_str());
  } else {
    (void)!::fchdir(world.file());
  }
}

void stat_file_system(World& world) {
  struct statfs out;
  (void)::statfs(world.path().c_str(), &out);
}

const char* attribute(Random& random) {
  return random.pick({"user.a", "user.b", "user.overlay.opaque", "user.overlay.whiteout",
                      "trusted.overlay.opaque", "security.capability", "system.posix_acl_access",
                      "system.posix_acl_default", "user."});
}

void set_attribute(World& world) {
  const std::string path = world.path();
  const char* const name = attribute(world.random());
  (void)::lsetxattr(path.c_str(), name, world.buffer(), world.random().below(kAttributeBytes),
                    world.random().pick<int>({0, XATTR_CREATE, XATTR_REPLACE}));
}

void get_attribute(World& world) {
  const std::string path = world.path();
  (void)::lgetxattr(path.c_str(), attribute(world.random()), world.buffer(),
                    world.random().below(kAttributeBytes));
}

void list_attributes(World& world) {
  (void)::llistxattr(world.path().c_str(), world.buffer(), world.random().below(kAttributeBytes));
}

void remove_attribute(World& world) {
  const std::string path = world.path();
  (void)::lremovexattr(path.c_str(), attribute(world.random()));
}

void watch_name(World& world) {
  const int watcher = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  (void)::inotify_add_watch(watcher, world.path().c_str(), IN_ALL_EVENTS);
  world.keep(watcher);
}

void get_handle(World& world) {
  const auto [directory, path] = world.place();
  alignas(file_handle) char bytes[sizeof(file_handle) + MAX_HANDLE_SZ] = {};
  auto* const handle = reinterpret_cast<file_handle*>(bytes);
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  (void)::name_to_handle_at(directory, path.c_str(), handle, &mount, AT_EMPTY_PATH);
  world.keep(::open_by_handle_at(world.file(), handle, O_RDONLY));
}

// A call that is listed several times is made correspondingly more often.
constexpr Call kCalls[] = {
    {"open", open_name},
    {"open", open_name},
    {"open", open_name},
    {"open", open_name},
    {"openat2", open_restricted},
    {"open directory", open_directory},
    {"O_TMPFILE", open_unnamed},
    {"mkdir", make_directory},
    {"mkdir", make_directory},
    {"mknod", make_node},
    {"unlink", remove_name},
    {"rmdir", remove_directory},
    {"rename", rename_name},
    {"rename", rename_name},
    {"renameat2", rename_specially},
    {"link", link_name},
    {"link file", link_file},
    {"symlink", make_symlink},
    {"readlink", read_symlink},
    {"chmod", change_mode},
    {"chown", change_owner},
    {"utimensat", change_times},
    {"truncate", truncate_name},
    {"statx", stat_name},
    {"faccessat", check_access},
    {"chdir", change_directory},
    {"statfs", stat_file_system},
    {"setxattr", set_attribute},
    {"getxattr", get_attribute},
    {"listxattr", list_attributes},
    {"removexattr", remove_attribute},
    {"inotify", watch_name},
    {"name_to_handle_at", get_handle},
};

}  // namespace

std::span<const Call> name_calls() { return kCalls; }

}  // namespace attacker
