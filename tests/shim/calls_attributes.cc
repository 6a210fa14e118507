// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

#include <cstring>

namespace calls {
namespace {

void say_status(const char* path) {
  struct stat status;
  if (::lstat(path, &status) != 0) return;
  const long age = status.st_mtim.tv_sec < 2000000 ? status.st_mtim.tv_sec : -1;
  say("  mode " + std::to_string(status.st_mode) + ", changed " + std::to_string(age) + "." +
      std::to_string(age < 0 ? 0 : status.st_mtim.tv_nsec));
}

void change_modes(const char* path) {
  (void)CALL(chmod, path, 0640u);
  say_status(path);
  (void)CALL(fchmodat, AT_FDCWD, path, 0604u, 0);
  (void)CALL(fchmodat, -1, path, 0644u, AT_SYMLINK_NOFOLLOW);
  (void)CALL(lchmod, path, 0600u);
  say_status(path);
  const uid_t owner = ::getuid();
  const gid_t group = ::getgid();
  (void)CALL(chown, path, owner, group);
  (void)CALL(lchown, path, owner, group);
  (void)CALL(fchownat, AT_FDCWD, path, owner, group, AT_SYMLINK_NOFOLLOW);
}

void change_times(const char* path) {
  const utimbuf seconds{1000001, 1000002};
  const timeval micros[2] = {{1000003, 4000}, {1000005, 6000}};
  const timespec nanos[2] = {{1000007, 8}, {1000009, 10}};
  (void)CALL(utime, path, &seconds);
  say_status(path);
  (void)CALL(utimes, path, micros);
  say_status(path);
  (void)CALL(utimensat, AT_FDCWD, path, nanos, 0);
  say_status(path);
  (void)CALL(futimesat, AT_FDCWD, path, micros);
  (void)CALL(utimensat, -1, path, nanos, AT_SYMLINK_NOFOLLOW);
  say_status(path);
  (void)CALL(lutimes, path, micros);
  say_status(path);
  (void)CALL(utime, path, static_cast<const utimbuf*>(nullptr));
}

void use_xattrs(const char* path) {
  char value[64];
  const char* const name = "user.colour";
  (void)CALL(setxattr, path, name, "red", 3u, 0);
  (void)CALL(lsetxattr, path, name, "blue", 4u, XATTR_REPLACE);
  (void)CALL(getxattr, path, name, value, sizeof value);
  (void)CALL(lgetxattr, path, name, value, 1u);
  (void)CALL(getxattr, path, "user.missing", value, sizeof value);
  (void)CALL(listxattr, path, value, sizeof value);
  (void)CALL(llistxattr, path, static_cast<char*>(nullptr), 0u);
  (void)CALL(removexattr, path, name);
  (void)CALL(lremovexattr, path, name);
}

}  // namespace

void run_attribute_calls() {
  write_file(at("attributes"), "x");
  (void)::symlink("attributes", at("attributes-link").c_str());
  for (const char* name : {"attributes", "attributes-link", "missing", "attributes/x"}) {
    change_modes(at(name).c_str());
    change_times(at(name).c_str());
    use_xattrs(at(name).c_str());
  }
  change_modes(nullptr);
  (void)CALL(getxattr, static_cast<const char*>(nullptr), "user.x", nullptr, 0u);
  const int fd = ::open(at("attributes").c_str(), O_RDONLY);
  const timespec now[2] = {{0, UTIME_OMIT}, {1000011, 12}};
  (void)CALL(utimensat, fd, static_cast<const char*>(nullptr), now, 0);
  say_status(at("attributes").c_str());
  ::close(fd);
}

}  // namespace calls
