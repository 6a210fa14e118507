// SPDX-License-Identifier: Apache-2.0
// Tests the known differences (known_differences.h) that no other case covers.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdio>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

void names_of_ours(Side& side) {
  (void)side.open(".wh.name", O_WRONLY | O_CREAT);
  side.did("mkdir", ::mkdirat(side.dir(), ".wh.directory", 0755));
  side.list(".");
}

void directory_nlink(Side& side) {
  struct stat st {};
  side.did("mkdir", ::mkdirat(side.dir(), "base_dir/second", 0755));
  if (side.did("stat", ::fstatat(side.dir(), "base_dir", &st, 0)) == 0) {
    side.note("nlink " + std::to_string(st.st_nlink));
  }
}

void inode_flags(Side& side) {
  const UniqueFd fd = side.open("base_file", O_RDONLY);
  int flags = 0;
  side.did("FS_IOC_GETFLAGS", ::ioctl(fd.get(), FS_IOC_GETFLAGS, &flags));
}

void rename_whiteout(Side& side) {
  side.did("rename", ::renameat2(side.dir(), "base_file", side.dir(), "moved", RENAME_WHITEOUT));
}

void trusted_attributes(Side& side) {
  for (const char* name : {"trusted.x", "security.x"}) {
    side.did(name, ::setxattr(side.path_of("base_file").c_str(), name, "1", 1, 0));
  }
  side.xattrs("base_file");
}

}  // namespace

void add_difference_cases(CaseList& list, bool as_root) {
  list.add("names of ours", {}, names_of_ours);
  list.add("directory nlink", {"base_dir"}, directory_nlink);
  list.add("inode flags", {"base_file"}, inode_flags);
  list.add("rename whiteout", {"base_file"}, rename_whiteout);
  // Without root, the kernel refuses trusted.* before the call reaches the file system.
  if (as_root) list.add("trusted attributes", {"base_file"}, trusted_attributes);
}

}  // namespace cacheshim::parity
