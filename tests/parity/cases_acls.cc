// SPDX-License-Identifier: Apache-2.0
// Tests POSIX ACLs with owner=keep, through their xattrs. Run as root.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <string>

#include "tests/parity/acl.h"
#include "tests/parity/case_list.h"
#include "tests/parity/other_user.h"

namespace cacheshim::parity {
namespace {

const User kOwner{"owner", kOwnerId, kOwnerId, {}};
const User kNamed{"named", kAclUser, kAclUser, {}};
const User kInNamedGroup{"in the named group", 20005, 20005, {kAclGroup}};
const User kStranger{"stranger", 20003, 20003, {}};
const User kUsers[] = {kStranger, kInNamedGroup, kNamed, kOwner};

void set_acl(Side& side, const std::string& name, const char* which, const std::string& value) {
  side.did(std::string("set ") + which,
           ::setxattr(side.path_of(name).c_str(), which, value.data(), value.size(), 0));
}

// Records both ACLs as fingerprints, because their values are binary.
void show_acls(Side& side, const std::string& name) {
  char value[256];
  for (const char* which : {kAccessAcl, kDefaultAcl}) {
    const ssize_t size =
        side.did(std::string("get ") + which,
                 ::getxattr(side.path_of(name).c_str(), which, value, sizeof value));
    if (size >= 0) side.note("  " + fingerprint({value, static_cast<std::size_t>(size)}));
  }
  side.stat(name);
}

void try_by_each(Side& side, const std::string& name) {
  for (const User& user : kUsers) {
    as_user(side, user, [&](Side& mine) {
      (void)mine.open(name, O_RDONLY | O_NONBLOCK);
      (void)mine.open(name, O_WRONLY | O_NONBLOCK);
      mine.did("execute", ::faccessat(mine.dir(), name.c_str(), X_OK, AT_EACCESS));
    });
  }
}

void access_acl(Side& side, const std::string& name) {
  show_acls(side, name);
  set_acl(side, name, kAccessAcl, acl_xattr({7, 6, 4, 5, 7, 0}));
  show_acls(side, name);
  try_by_each(side, name);
  side.did("chmod, which sets the mask", ::fchmodat(side.dir(), name.c_str(), 0744, 0));
  show_acls(side, name);
  try_by_each(side, name);
  side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), "with-acl"));
  show_acls(side, "with-acl");
  side.did("remove", ::removexattr(side.path_of("with-acl").c_str(), kAccessAcl));
  show_acls(side, "with-acl");
  side.did("remove again", ::removexattr(side.path_of("with-acl").c_str(), kAccessAcl));
}

void acl_by_others(Side& side, const std::string& name) {
  for (const User& user : kUsers) {
    as_user(side, user, [&](Side& mine) {
      set_acl(mine, name, kAccessAcl, acl_xattr({6, 4, 4, 4, 4, 4}));
      show_acls(mine, name);
    });
  }
  set_acl(side, name, kAccessAcl, "no ACL at all");
}

// Setting an ACL clears a file's set-group-id bit if the caller is not in the file's group, as
// chmod does.
void acl_and_set_group_id(Side& side, const std::string& name) {
  side.did("chown", ::fchownat(side.dir(), name.c_str(), kOwnerId, kAclGroup, 0));
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 02755, 0));
  as_user(side, kOwner, [&](Side& mine) {
    set_acl(mine, name, kAccessAcl, acl_xattr({7, 5, 5, 5, 5, 5}));
  });
  side.stat(name);
}

void default_acl(Side& side, const std::string& name) {
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0777, 0));
  set_acl(side, name, kDefaultAcl, acl_xattr({7, 6, 5, 4, 7, 0}));
  show_acls(side, name);
  as_user(side, kStranger, [&](Side& mine) {
    (void)::umask(077);
    (void)mine.open(name + "/file", O_WRONLY | O_CREAT, 0666);
    show_acls(mine, name + "/file");
    (void)mine.open(name + "/closed", O_WRONLY | O_CREAT, 0600);
    show_acls(mine, name + "/closed");
    mine.did("mkdir", ::mkdirat(mine.dir(), (name + "/directory").c_str(), 0777));
    show_acls(mine, name + "/directory");
    (void)mine.open(name + "/directory/file", O_WRONLY | O_CREAT, 0666);
    show_acls(mine, name + "/directory/file");
    mine.did("mkfifo", ::mkfifoat(mine.dir(), (name + "/fifo").c_str(), 0666));
    show_acls(mine, name + "/fifo");
    mine.did("symlink", ::symlinkat("x", mine.dir(), (name + "/link").c_str()));
    mine.stat(name + "/link");
    (void)mine.open(name + "/set-ids", O_WRONLY | O_CREAT, 06777);
    show_acls(mine, name + "/set-ids");
  });
  try_by_each(side, name + "/file");
  try_by_each(side, name + "/directory/file");
  side.did("remove", ::removexattr(side.path_of(name).c_str(), kDefaultAcl));
  (void)side.open(name + "/after", O_WRONLY | O_CREAT, 0666);
  show_acls(side, name + "/after");
}

// A copy-up preserves the object's ACL, and does not add its directory's default ACL.
void acl_and_copy_up(Side& side, const std::string& name) {
  show_acls(side, name);
  if (const UniqueFd fd = side.open(name, O_WRONLY)) side.write(fd.get(), "x");
  show_acls(side, name);
  side.did("chown", ::fchownat(side.dir(), name.c_str(), 20002, 20002, 0));
  show_acls(side, name);
  try_by_each(side, name);
}

void copy_up_below_a_default_acl(Side& side, const std::string& name) {
  set_acl(side, ".", kDefaultAcl, acl_xattr({7, 6, 5, 4, 7, 0}));
  if (const UniqueFd fd = side.open(name, O_WRONLY)) side.write(fd.get(), "x");
  show_acls(side, name);
  const auto slash = name.rfind('/');
  if (slash != std::string::npos) show_acls(side, name.substr(0, slash));
}

}  // namespace

void add_acl_cases(CaseList& list) {
  list.add_for_each("access ACL", all_names(), access_acl);
  list.add_for_each("ACL by others", all_names(), acl_by_others);
  list.add_for_each("ACL and set-group-id", file_names(), acl_and_set_group_id);
  list.add_for_each("default ACL", directory_names(), default_acl);
  list.add_for_each("ACL and copy-up", acl_names(), acl_and_copy_up);
  list.add_for_each("copy-up below a default ACL", file_names(), copy_up_below_a_default_acl);
}

}  // namespace cacheshim::parity
