// SPDX-License-Identifier: Apache-2.0
// Tests modes, owners, times, access(2) and extended attributes.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

void stat_name(Side& side, const std::string& name) {
  side.stat(name);
  struct statx stx {};
  if (side.did("statx", ::statx(side.dir(), name.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS,
                                &stx)) == 0) {
    side.note("mode " + std::to_string(stx.stx_mode));
  }
  struct stat st {};
  side.did("stat", ::fstatat(side.dir(), name.c_str(), &st, 0));
}

void change_mode(Side& side, const std::string& name) {
  for (const mode_t mode : {0600u, 0000u, 0755u, 0444u, 0700u}) {
    side.did("chmod", ::fchmodat(side.dir(), name.c_str(), mode, 0));
    side.stat(name);
  }
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0755, 0));
  if (const UniqueFd fd = side.open(name, O_RDONLY)) {
    side.did("fchmod", ::fchmod(fd.get(), 0700));
    side.fstat(fd.get(), "after fchmod");
  }
}

void change_owner(Side& side, const std::string& name) {
  side.did("lchown to self",
           ::fchownat(side.dir(), name.c_str(), ::geteuid(), ::getegid(), AT_SYMLINK_NOFOLLOW));
  side.did("chown to nobody in particular",
           ::fchownat(side.dir(), name.c_str(), static_cast<uid_t>(-1), static_cast<gid_t>(-1), 0));
  side.stat(name);
  if (const UniqueFd fd = side.open(name, O_RDONLY)) {
    side.did("fchown", ::fchown(fd.get(), ::geteuid(), ::getegid()));
  }
}

void change_times(Side& side, const std::string& name) {
  const auto set = [&](const char* what, timespec access, timespec modification) {
    const timespec times[2] = {access, modification};
    side.did(what, ::utimensat(side.dir(), name.c_str(), times, AT_SYMLINK_NOFOLLOW));
    side.stat(name);
  };
  set("both", {1'000'000'000, 1}, {1'234'567'890, 987'654'321});
  set("access only", {1'000'000'001, 2}, {0, UTIME_OMIT});
  set("modification now", {0, UTIME_OMIT}, {0, UTIME_NOW});
  set("before 1970", {-1, 5}, {-86400, 7});
  set("neither", {0, UTIME_OMIT}, {0, UTIME_OMIT});
  set("access now", {0, UTIME_NOW}, {1'111'111'111, 1});
  set("bad", {0, 2'000'000'000}, {0, 0});
  side.did("utimensat NULL", ::utimensat(side.dir(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW));
  side.stat(name);
  if (const UniqueFd fd = side.open(name, O_RDONLY)) {
    const timespec times[2] = {{1'000'000'003, 3}, {1'000'000'004, 4}};
    side.did("futimens", ::futimens(fd.get(), times));
    side.fstat(fd.get(), "after futimens");
  }
}

// Sets the times with futimens after a write. These times must remain until the next write, even after the descriptor
// that was used for the first write is closed.
void times_and_writes(Side& side, const std::string& name) {
  const timespec times[2] = {{1'000'000'000, 1}, {1'234'567'890, 5}};
  if (const UniqueFd fd = side.open(name, O_RDWR)) {
    side.write(fd.get(), "first");
    side.did("futimens", ::futimens(fd.get(), times));
  }
  side.stat(name);
  if (const UniqueFd fd = side.open(name, O_RDWR)) side.write(fd.get(), "second");
  side.stat(name);
}

void check_access(Side& side, const std::string& name) {
  for (const int mode : {F_OK, R_OK, W_OK, X_OK, R_OK | W_OK}) {
    side.did("access " + std::to_string(mode), ::faccessat(side.dir(), name.c_str(), mode, 0));
  }
}

// Without permission bits (mode 0000), a directory is inaccessible even to its owner. Root can
// still access it.
void closed_directory(Side& side, const std::string& name) {
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0000, 0));
  side.list(name);
  (void)side.open(name + "/a", O_RDONLY);
  (void)side.open(name + "/new", O_WRONLY | O_CREAT);
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0500, 0));
  side.contents(name + "/a");
  (void)side.open(name + "/new", O_WRONLY | O_CREAT);
  side.did("unlink", ::unlinkat(side.dir(), (name + "/a").c_str(), 0));
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0755, 0));
}

void attributes(Side& side, const std::string& name) {
  const std::string path = side.path_of(name);
  const auto set = [&](const char* key, const std::string& value, int flags) {
    side.did(std::string("setxattr ") + key + " " + std::to_string(flags),
             ::lsetxattr(path.c_str(), key, value.data(), value.size(), flags));
  };
  side.xattrs(name);
  set("user.first", "one", 0);
  set("user.first", "two", XATTR_CREATE);
  set("user.second", "three", XATTR_REPLACE);
  set("user.second", "", 0);
  set("user.first", "four", XATTR_REPLACE);
  set("bad", "x", 0);
  set("user.", "x", 0);
  side.xattrs(name);
  char small[2];
  side.did("getxattr too small", ::lgetxattr(path.c_str(), "user.first", small, sizeof small));
  side.did("getxattr size", ::lgetxattr(path.c_str(), "user.first", nullptr, 0));
  side.did("listxattr too small", ::llistxattr(path.c_str(), small, sizeof small));
  side.did("listxattr size", ::llistxattr(path.c_str(), nullptr, 0));
  side.did("getxattr absent", ::lgetxattr(path.c_str(), "user.none", small, sizeof small));
  side.did("removexattr", ::lremovexattr(path.c_str(), "user.second"));
  side.did("removexattr absent", ::lremovexattr(path.c_str(), "user.second"));
  side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), "with-attributes"));
  side.xattrs("with-attributes");
}

// A write to the file preserves an attribute that was set in the layer.
void attributes_and_writes(Side& side, const std::string& name) {
  const std::string path = side.path_of(name);
  side.did("setxattr", ::setxattr(path.c_str(), "user.kept", "yes", 3, 0));
  if (const UniqueFd fd = side.open(name, O_WRONLY | O_APPEND)) side.write(fd.get(), "more");
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0640, 0));
  side.xattrs(name);
}

}  // namespace

void add_attribute_cases(CaseList& list) {
  list.add_for_each("stat", all_names(), stat_name);
  list.add_for_each("chmod", all_names(), change_mode);
  list.add_for_each("chown to self", all_names(), change_owner);
  list.add_for_each("times", all_names(), change_times);
  list.add_for_each("times and writes", file_names(), times_and_writes);
  list.add_for_each("access", all_names(), check_access);
  list.add_for_each("closed directory", directory_names(), closed_directory);
  list.add_for_each("attributes", all_names(), attributes);
  list.add_for_each("attributes and writes", file_names(), attributes_and_writes);
}

}  // namespace cacheshim::parity
