// SPDX-License-Identifier: Apache-2.0
// Tests, with owner=keep, which operations users may perform on each other's files, and who owns new files. Run as
// root. The files belong to kOwner. kStranger tries each operation first and kOwner last. So if an operation is wrongly
// allowed, the results for the next user differ, too.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/parity/case_list.h"
#include "tests/parity/other_user.h"

namespace cacheshim::parity {
namespace {

const User kOwner{"owner", kOwnerId, kOwnerId, {}};
const User kMember{"member", 20002, 20002, {kOwnerId, 20009}};
const User kStranger{"stranger", 20003, 20003, {}};
const User kUsers[] = {kStranger, kMember, kOwner};

// Modes of the parent directory. Each of them gives other users different rights.
constexpr mode_t kDirectoryModes[] = {0755, 0775, 0777, 01777, 02775, 03777};

// Returns a name for each kind of object in the base, the layer, or both.
const std::vector<std::string>& some_names() {
  static const std::vector<std::string> names = {
      "base_file",       "layer_file", "both_file", "moved_file", "base_dir/a", "base_empty_dir",
      "layer_empty_dir", "base_dir",   "both_dir",  "opaque",     "base_link",  "gone_file"};
  return names;
}

using Operation = void (*)(Side& side, const std::string& name);

void by_each(Side& side, const std::string& name, Operation operation) {
  for (const User& user : kUsers) {
    as_user(side, user, [&](Side& mine) { operation(mine, name); });
    side.stat(name);
  }
}

std::string octal(mode_t mode) {
  char text[8];
  (void)std::snprintf(text, sizeof text, "%04o", mode);
  return text;
}

void open_name(Side& side, const std::string& name) {
  (void)side.open(name, O_RDONLY | O_NONBLOCK);
  (void)side.open(name, O_WRONLY | O_NONBLOCK);
  (void)side.open(name, O_RDWR | O_CREAT | O_NONBLOCK);
  (void)side.open(name, O_WRONLY | O_TRUNC | O_NONBLOCK);
  (void)side.open(name, O_RDONLY | O_NOATIME | O_NONBLOCK);
  for (const int mode : {R_OK, W_OK, X_OK}) {
    side.did("access", ::faccessat(side.dir(), name.c_str(), mode, AT_EACCESS));
  }
  side.did("truncate", ::truncate(side.path_of(name).c_str(), 100));
}

void change_name(Side& side, const std::string& name) {
  const auto chown = [&](uid_t uid, gid_t gid) {
    side.did("chown " + std::to_string(uid) + ":" + std::to_string(gid),
             ::fchownat(side.dir(), name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW));
  };
  constexpr auto kSame = static_cast<uid_t>(-1);
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0754, 0));
  side.did("chmod g+s", ::fchmodat(side.dir(), name.c_str(), 02754, 0));
  side.did("chmod u+s", ::fchmodat(side.dir(), name.c_str(), 04711, 0));
  side.stat(name);
  chown(kSame, ::getegid());
  chown(kSame, 20009);
  chown(kSame, 1);
  chown(::geteuid(), kSame);
  chown(1, 1);
  chown(kSame, kSame);
  side.stat(name);
}

void touch_name(Side& side, const std::string& name) {
  const timespec set[2] = {{1'000'000'000, 1}, {1'000'000'000, 2}};
  side.did("utimes", ::utimensat(side.dir(), name.c_str(), set, AT_SYMLINK_NOFOLLOW));
  side.did("touch", ::utimensat(side.dir(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW));
  const std::string path = side.path_of(name);
  side.did("setxattr", ::lsetxattr(path.c_str(), "user.by", "x", 1, 0));
  side.did("setxattr trusted", ::lsetxattr(path.c_str(), "trusted.by", "x", 1, 0));
  char value[8];
  side.did("getxattr", ::lgetxattr(path.c_str(), "user.by", value, sizeof value));
  side.did("removexattr", ::lremovexattr(path.c_str(), "user.by"));
}

void remove_name(Side& side, const std::string& name) {
  side.did("unlink", ::unlinkat(side.dir(), name.c_str(), 0));
  side.did("rmdir", ::unlinkat(side.dir(), name.c_str(), AT_REMOVEDIR));
}

void rename_name(Side& side, const std::string& name) {
  side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), "elsewhere"));
  side.did("rename back", ::renameat(side.dir(), "elsewhere", side.dir(), name.c_str()));
  side.did("rename over", ::renameat(side.dir(), name.c_str(), side.dir(), "target"));
}

void link_name(Side& side, const std::string& name) {
  side.did("link", ::linkat(side.dir(), name.c_str(), side.dir(), "another", 0));
  side.did("unlink", ::unlinkat(side.dir(), "another", 0));
}

void make_in(Side& side, const std::string& directory) {
  const std::string at = directory + "/by-" + std::to_string(::geteuid());
  const auto show = [&](const char* what) { side.stat(at + what); };
  for (const mode_t mask : {022u, 077u, 0u}) {
    (void)::umask(mask);
    const std::string file = at + "-file-" + std::to_string(mask);
    (void)side.open(file, O_WRONLY | O_CREAT | O_EXCL, 0666);
    side.stat(file);
  }
  (void)::umask(022);
  (void)side.open(at + "-set-ids", O_WRONLY | O_CREAT, 06777);
  show("-set-ids");
  side.did("mkdir", ::mkdirat(side.dir(), (at + "-directory").c_str(), 01777));
  show("-directory");
  side.did("mkfifo", ::mkfifoat(side.dir(), (at + "-fifo").c_str(), 0666));
  show("-fifo");
  side.did("mknod", ::mknodat(side.dir(), (at + "-node").c_str(), S_IFREG | 0666, 0));
  show("-node");
  side.did("symlink", ::symlinkat("target", side.dir(), (at + "-link").c_str()));
  show("-link");
  side.did("mknod device",
           ::mknodat(side.dir(), (at + "-device").c_str(), S_IFCHR | 0666, makedev(1, 3)));
}

void add_directory_mode_cases(CaseList& list) {
  for (const mode_t mode : kDirectoryModes) {
    const auto add = [&](const char* what, const std::vector<std::string>& names,
                         Operation operation) {
      list.add_for_each(std::string("others ") + what + " in " + octal(mode), names,
                        [mode, operation](Side& side, const std::string& name) {
                          side.did("chmod", ::fchmod(side.dir(), mode));
                          by_each(side, name, operation);
                        });
    };
    add("remove", some_names(), remove_name);
    add("rename", some_names(), rename_name);
    add("link", file_names(), link_name);
    list.add_for_each("others make in " + octal(mode), directory_names(),
                      [mode](Side& side, const std::string& name) {
                        side.did("chmod", ::fchmodat(side.dir(), name.c_str(), mode, 0));
                        by_each(side, name, make_in);
                      });
  }
}

// Adds cases in which the object itself has an unusual mode.
void add_object_mode_cases(CaseList& list) {
  for (const mode_t mode : {0000u, 0600u, 0640u, 0666u, 0711u, 02775u, 06755u}) {
    const auto add = [&](const char* what, Operation operation) {
      list.add_for_each(std::string("others ") + what + " " + octal(mode), some_names(),
                        [mode, operation](Side& side, const std::string& name) {
                          side.did("chmod", ::fchmodat(side.dir(), name.c_str(), mode, 0));
                          by_each(side, name, operation);
                        });
    };
    add("open", open_name);
    add("change", change_name);
    add("touch", touch_name);
  }
}

// Sets the mode, calls `change`, and records which set-id bits are left.
void with_mode(Side& side, const std::string& name, mode_t mode,
               const std::function<void()>& change) {
  side.did("chown", ::fchownat(side.dir(), name.c_str(), kOwnerId, kOwnerId, 0));
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), mode, 0));
  change();
  side.stat(name);
}

void write_to(Side& side, const std::string& name) {
  if (const UniqueFd fd = side.open(name, O_WRONLY)) side.write(fd.get(), "x");
}

// A change to the data by a user other than root, and a chown by anyone, clear the set-id bits.
void set_ids_are_dropped(Side& side, const std::string& name) {
  const auto by = [&](const User& user, const std::function<void(Side&)>& change) {
    with_mode(side, name, 06777, [&] { as_user(side, user, change); });
  };
  by(kStranger, [&](Side& mine) { write_to(mine, name); });
  by(kOwner, [&](Side& mine) { mine.did("truncate", ::truncate(mine.path_of(name).c_str(), 10)); });
  by(kStranger, [&](Side& mine) { (void)mine.open(name, O_WRONLY | O_TRUNC); });
  by(kMember, [&](Side& mine) {
    if (const UniqueFd fd = mine.open(name, O_RDWR)) {
      mine.did("fallocate", ::fallocate(fd.get(), 0, 0, 5000));
    }
  });
  by(kOwner, [&](Side& mine) {
    mine.did("chgrp", ::fchownat(mine.dir(), name.c_str(), static_cast<uid_t>(-1), kOwnerId, 0));
  });
  with_mode(side, name, 06777, [&] { write_to(side, name); });
  with_mode(side, name, 06777, [&] {
    side.did("chown by root", ::fchownat(side.dir(), name.c_str(), 20002, 20002, 0));
  });
}

// On a file without group-execute permission, the set-group-id bit once requested mandatory
// locking. A write to such a file clears the bit only if the writer is not in the file's group.
void bare_set_group_id(Side& side, const std::string& name) {
  with_mode(side, name, 02766,
            [&] { as_user(side, kStranger, [&](Side& mine) { write_to(mine, name); }); });
}

void capability_is_dropped(Side& side, const std::string& name) {
  vfs_cap_data data{};
  data.magic_etc = VFS_CAP_REVISION_2;
  data.data[0].permitted = 1u << CAP_NET_BIND_SERVICE;
  const std::string path = side.path_of(name);
  const auto check = [&] {
    char value[64];
    side.did("getxattr", ::getxattr(path.c_str(), "security.capability", value, sizeof value));
  };
  const auto arm = [&] {
    side.did("setxattr",
             ::setxattr(path.c_str(), "security.capability", &data, XATTR_CAPS_SZ_2, 0));
    check();
  };
  arm();
  side.xattrs(name);
  if (const UniqueFd fd = side.open(name, O_WRONLY)) side.write(fd.get(), "x");
  check();
  arm();
  side.did("chmod", ::chmod(path.c_str(), 0700));
  check();
  side.did("truncate", ::truncate(path.c_str(), 3));
  check();
  arm();
  side.did("chown", ::chown(path.c_str(), 20002, 20002));
  check();
  arm();
  side.did("removexattr", ::removexattr(path.c_str(), "security.capability"));
  check();
}

void devices(Side& side) {
  const auto make = [&](const char* name, mode_t type, dev_t device) {
    side.did(name, ::mknodat(side.dir(), name, type | 0640, device));
    side.stat(name);
    struct stat st {};
    if (::fstatat(side.dir(), name, &st, 0) != 0) return;
    side.note("  device " + std::to_string(major(st.st_rdev)) + ":" +
              std::to_string(minor(st.st_rdev)));
  };
  make("null", S_IFCHR, makedev(1, 3));
  make("disk", S_IFBLK, makedev(259, 70000));
  side.did("chown", ::fchownat(side.dir(), "null", kOwnerId, kOwnerId, 0));
  side.did("rename", ::renameat(side.dir(), "null", side.dir(), "void"));
  side.did("link", ::linkat(side.dir(), "void", side.dir(), "twin", 0));
  side.list(".");
}

}  // namespace

void add_permission_cases(CaseList& list) {
  add_directory_mode_cases(list);
  add_object_mode_cases(list);
  list.add_for_each("set-ids are dropped", file_names(), set_ids_are_dropped);
  list.add_for_each("bare set-group-id", file_names(), bare_set_group_id);
  list.add_for_each("capability is dropped", file_names(), capability_is_dropped);
  list.add("devices", {}, devices);
}

}  // namespace cacheshim::parity
