// SPDX-License-Identifier: Apache-2.0
// Tests that a file keeps its inode number and that its descriptors stay valid through copy-up,
// rename and unlink.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const Identity&) const = default;
};

Identity of_name(const Side& side, const std::string& name) {
  struct stat st {};
  if (::fstatat(side.dir(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return {};
  return {st.st_dev, st.st_ino};
}

Identity of_fd(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return {};
  return {st.st_dev, st.st_ino};
}

void same(Side& side, const char* what, const Identity& one, const Identity& two) {
  side.note(std::string(what) + (one == two ? ": the same" : ": another"));
}

void copy_up(Side& side, const std::string& name) {
  const Identity before = of_name(side, name);
  const UniqueFd reader = side.open(name, O_RDONLY);
  if (!reader) return;
  same(side, "descriptor and name", before, of_fd(reader.get()));
  if (const UniqueFd writer = side.open(name, O_RDWR)) {
    side.pwrite(writer.get(), "changed", 20);
    same(side, "writer and reader", of_fd(writer.get()), of_fd(reader.get()));
  }
  side.contents(reader.get());
  same(side, "before and after a write", before, of_name(side, name));
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0600, 0));
  side.fstat(reader.get(), "after chmod");
  side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), "renamed"));
  same(side, "after a rename", before, of_name(side, "renamed"));
  side.did("link", ::linkat(side.dir(), "renamed", side.dir(), "twin", 0));
  same(side, "after a link", before, of_name(side, "twin"));
}

void directory_identity(Side& side, const std::string& name) {
  const Identity before = of_name(side, name);
  (void)side.open(name + "/new", O_WRONLY | O_CREAT);
  same(side, "after a creation", before, of_name(side, name));
  side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(), "renamed"));
  same(side, "after a rename", before, of_name(side, "renamed"));
  same(side, "by ..", before, of_name(side, "renamed/."));
  side.did("rename", ::renameat(side.dir(), "renamed", side.dir(), name.c_str()));
  same(side, "after the way back", before, of_name(side, name));
}

void unlinked_but_open(Side& side, const std::string& name) {
  const UniqueFd reader = side.open(name, O_RDONLY);
  const UniqueFd writer = side.open(name, O_RDWR);
  side.did("unlink", ::unlinkat(side.dir(), name.c_str(), 0));
  for (const UniqueFd* fd : {&reader, &writer}) {
    if (!*fd) continue;
    side.fstat(fd->get(), "unlinked");
    side.contents(fd->get());
  }
  if (writer) {
    side.pwrite(writer.get(), "written to the unlinked file", 100);
    side.did("ftruncate", ::ftruncate(writer.get(), 3000));
    side.did("fchmod", ::fchmod(writer.get(), 0600));
    side.did("fsync", ::fsync(writer.get()));
  }
  if (reader) side.contents(reader.get());
  if (const UniqueFd fd = side.open(name, O_WRONLY | O_CREAT)) side.write(fd.get(), "the next one");
  if (reader) side.contents(reader.get());
  side.contents(name);
}

// Unlinks the file and then changes its attributes through a descriptor. If a base file has not been changed before,
// the overlay copies it up although it no longer has a name.
void copy_up_after_unlink(Side& side, const std::string& name) {
  const UniqueFd reader = side.open(name, O_RDONLY);
  if (!reader) return;
  side.did("unlink", ::unlinkat(side.dir(), name.c_str(), 0));
  side.did("fchmod", ::fchmod(reader.get(), 0600));
  const timespec times[2] = {{1'000'000'000, 1}, {1'000'000'000, 1}};
  side.did("futimens", ::futimens(reader.get(), times));
  side.fstat(reader.get(), "changed after the unlink");
  side.contents(reader.get());
}

void unlinked_directory(Side& side, const std::string& name) {
  const UniqueFd fd = side.open(name, O_RDONLY | O_DIRECTORY);
  side.did("rmdir", ::unlinkat(side.dir(), name.c_str(), AT_REMOVEDIR));
  if (!fd) return;
  side.did("create", ::openat(fd.get(), "x", O_WRONLY | O_CREAT | O_CLOEXEC, 0644) < 0 ? -1 : 0);
  side.did("mkdir", ::mkdirat(fd.get(), "x", 0755));
  struct stat st {};
  side.did("fstat", ::fstat(fd.get(), &st));
}

void replaced_by_rename(Side& side, const std::string& name) {
  const Identity before = of_name(side, name);
  if (const UniqueFd fd = side.open("fresh", O_WRONLY | O_CREAT)) side.write(fd.get(), "fresh");
  const Identity fresh = of_name(side, "fresh");
  side.did("rename", ::renameat(side.dir(), "fresh", side.dir(), name.c_str()));
  same(side, "name and what was there", before, of_name(side, name));
  same(side, "name and what came", fresh, of_name(side, name));
}

// Executes the file as a script.
void execution(Side& side, const std::string& name) {
  if (const UniqueFd fd = side.open(name, O_WRONLY | O_TRUNC)) {
    side.write(fd.get(), "#!/bin/sh\nexit 42\n");
  }
  side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0755, 0));
  const std::string path = side.path_of(name);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(path.c_str(), path.c_str(), nullptr);
    ::_exit(errno);
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  side.note("exit status " + std::to_string(WEXITSTATUS(status)));
}

}  // namespace

void add_identity_cases(CaseList& list) {
  list.add_for_each("identity", file_names(), copy_up);
  list.add_for_each("directory identity", directory_names(), directory_identity);
  list.add_for_each("unlinked but open", file_names(), unlinked_but_open);
  list.add_for_each("changed after unlink", file_names(), copy_up_after_unlink);
  list.add_for_each("unlinked directory", directory_names(), unlinked_directory);
  list.add_for_each("replaced by rename", file_names(), replaced_by_rename);
  list.add_for_each("execution", file_names(), execution);
}

}  // namespace cacheshim::parity
