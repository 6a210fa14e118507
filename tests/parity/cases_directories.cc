// SPDX-License-Identifier: Apache-2.0
// Tests mkdir, rmdir, unlink, listings, and working directories.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

void make_directory(Side& side, const std::string& name) {
  side.did("mkdir", ::mkdirat(side.dir(), name.c_str(), 0755));
  side.did("mkdir again", ::mkdirat(side.dir(), name.c_str(), 0755));
  (void)side.open(name + "/inside", O_WRONLY | O_CREAT);
  side.did("rmdir", ::unlinkat(side.dir(), name.c_str(), AT_REMOVEDIR));
}

void remove_directory(Side& side, const std::string& name) {
  side.did("rmdir", ::unlinkat(side.dir(), name.c_str(), AT_REMOVEDIR));
  side.stat(name);
}

void unlink_name(Side& side, const std::string& name) {
  side.did("unlink", ::unlinkat(side.dir(), name.c_str(), 0));
  side.stat(name);
  side.did("unlink again", ::unlinkat(side.dir(), name.c_str(), 0));
  side.did("mkdir in its place", ::mkdirat(side.dir(), name.c_str(), 0755));
  side.list(name);
}

void unlink_and_create(Side& side, const std::string& name) {
  side.did("unlink", ::unlinkat(side.dir(), name.c_str(), 0));
  if (const UniqueFd fd = side.open(name, O_RDWR | O_CREAT | O_EXCL)) side.write(fd.get(), "again");
  side.contents(name);
}

// Removes a new directory and then its parent, as os.removedirs() does. The second rmdir fails if
// the parent is not empty.
void remove_upwards(Side& side, const std::string& name) {
  side.did("mkdir", ::mkdirat(side.dir(), (name + "/tmp.pid_1").c_str(), 0755));
  side.did("rmdir", ::unlinkat(side.dir(), (name + "/tmp.pid_1").c_str(), AT_REMOVEDIR));
  side.did("rmdir parent", ::unlinkat(side.dir(), name.c_str(), AT_REMOVEDIR));
  side.list(name);
}

// Removes a directory with its content and creates it again: the old content must not reappear.
void remove_and_refill(Side& side, const std::string& name) {
  for (const char* inside : {"/a", "/sub/b", "/upper", "/new"}) {
    side.did(std::string("unlink ") + inside, ::unlinkat(side.dir(), (name + inside).c_str(), 0));
  }
  side.did("rmdir sub", ::unlinkat(side.dir(), (name + "/sub").c_str(), AT_REMOVEDIR));
  side.did("rmdir", ::unlinkat(side.dir(), name.c_str(), AT_REMOVEDIR));
  side.did("mkdir", ::mkdirat(side.dir(), name.c_str(), 0755));
  side.list(name);
  side.did("mkdir sub", ::mkdirat(side.dir(), (name + "/sub").c_str(), 0755));
  side.list(name + "/sub");
}

void list_directory(Side& side, const std::string& name) {
  side.list(name);
  side.did("access", ::faccessat(side.dir(), name.c_str(), R_OK | W_OK | X_OK, 0));
}

// Lists a directory, adds and removes names, and lists it again after rewinddir().
void list_under_change(Side& side, const std::string& name) {
  UniqueFd fd = side.open(name, O_RDONLY | O_DIRECTORY);
  DIR* dir = fd ? ::fdopendir(fd.release()) : nullptr;
  if (dir == nullptr) return;
  const auto read_rest = [&](const char* when) {
    std::multiset<std::string> names;
    while (const dirent* entry = ::readdir(dir)) names.insert(entry->d_name);
    std::string text = std::string(when) + ":";
    for (const std::string& one : names) text += " " + one;
    side.note(text);
  };
  read_rest("first");
  (void)side.open(name + "/added", O_WRONLY | O_CREAT);
  side.did("unlink a", ::unlinkat(side.dir(), (name + "/a").c_str(), 0));
  ::rewinddir(dir);
  read_rest("rewound");
  (void)::closedir(dir);
}

// Removes each name of a large directory as soon as the listing has returned the name. The listing
// must still return every name exactly once.
void list_large_directory(Side& side) {
  side.did("mkdir", ::mkdirat(side.dir(), "large", 0755));
  for (int number = 0; number < 1000; ++number) {
    const std::string name = "large/file-with-a-rather-long-name-" + std::to_string(number);
    const UniqueFd fd(::openat(side.dir(), name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    if (!fd) side.note("cannot create " + name);
  }
  DIR* dir = ::fdopendir(::openat(side.dir(), "large", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (dir == nullptr) return side.note("cannot list");
  std::multiset<std::string> names;
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    names.insert(entry->d_name);
    (void)::unlinkat(::dirfd(dir), entry->d_name, 0);
  }
  (void)::closedir(dir);
  side.note("names: " + std::to_string(names.size()) +
            ", different: " + std::to_string(std::set(names.begin(), names.end()).size()));
  side.did("rmdir", ::unlinkat(side.dir(), "large", AT_REMOVEDIR));
}

void working_directory(Side& side, const std::string& name) {
  const UniqueFd before(::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (side.did("chdir", ::chdir(side.path_of(name).c_str())) != 0) return;
  std::array<char, 8192> path;
  const bool good = ::getcwd(path.data(), path.size()) != nullptr;
  side.did("getcwd", good ? 0 : -1);
  if (good) side.note(std::string(path.data()).substr(side.path().size()));
  (void)UniqueFd(side.opened("create", ::open("here", O_WRONLY | O_CREAT | O_CLOEXEC, 0644)));
  side.did("unlink here", ::unlink("here"));
  side.did("rename of it", ::renameat(side.dir(), name.c_str(), side.dir(), "elsewhere"));
  side.did("getcwd", ::getcwd(path.data(), path.size()) != nullptr ? 0 : -1);
  side.did("rmdir of it", ::unlinkat(side.dir(), "elsewhere", AT_REMOVEDIR));
  side.did("create in it", ::open("late", O_WRONLY | O_CREAT | O_CLOEXEC, 0644) < 0 ? -1 : 0);
  side.did("fchdir", ::fchdir(before.get()));
}

void removed_working_directory(Side& side, const std::string& name) {
  const UniqueFd before(::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (side.did("chdir", ::chdir(side.path_of(name).c_str())) != 0) return;
  side.did("rmdir", ::unlinkat(side.dir(), name.c_str(), AT_REMOVEDIR));
  std::array<char, 8192> path;
  side.did("getcwd", ::getcwd(path.data(), path.size()) != nullptr ? 0 : -1);
  const UniqueFd here = side.opened("open(.)", ::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  side.did("create", ::open("late", O_WRONLY | O_CREAT | O_CLOEXEC, 0644) < 0 ? -1 : 0);
  side.did("fchdir", ::fchdir(before.get()));
}

void file_system(Side& side, const std::string& name) {
  struct statvfs vfs {};
  if (side.did("statvfs", ::statvfs(side.path_of(name).c_str(), &vfs)) == 0) {
    side.note("namemax " + std::to_string(vfs.f_namemax));
    side.did("sane", vfs.f_blocks > 0 && vfs.f_bsize > 0 && vfs.f_bavail <= vfs.f_blocks ? 0 : -2);
  }
  if (const UniqueFd fd = side.open(name, O_RDONLY)) {
    struct statfs fs {};
    side.did("fstatfs", ::fstatfs(fd.get(), &fs));
    side.did("fsync", ::fsync(fd.get()));
    side.did("fdatasync", ::fdatasync(fd.get()));
    side.did("syncfs", ::syncfs(fd.get()));
  }
}

}  // namespace

void add_directory_cases(CaseList& list) {
  list.add_for_each("mkdir", all_names(), make_directory);
  list.add_for_each("rmdir", all_names(), remove_directory);
  list.add_for_each("unlink", all_names(), unlink_name);
  list.add_for_each("unlink and create", all_names(), unlink_and_create);
  list.add_for_each("remove upwards", all_names(), remove_upwards);
  list.add_for_each("remove and refill", directory_names(), remove_and_refill);
  list.add_for_each("list", all_names(), list_directory);
  list.add_for_each("list under change", directory_names(), list_under_change);
  list.add("list a large directory while emptying it", {}, list_large_directory);
  list.add_for_each("working directory", directory_names(), working_directory);
  list.add_for_each("removed working directory", directory_names(), removed_working_directory);
  list.add_for_each("file system", all_names(), file_system);
}

}  // namespace cacheshim::parity
