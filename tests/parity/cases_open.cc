// SPDX-License-Identifier: Apache-2.0
// Tests open(2) with different flags on names in every state, and calls on the descriptor.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

void read_and_write(Side& side, const UniqueFd& fd) {
  side.contents(fd.get());
  side.pwrite(fd.get(), "put by the case", 100);
  side.write(fd.get(), "at the offset");
  side.did("lseek(0, SEEK_CUR)", ::lseek(fd.get(), 0, SEEK_CUR));
  side.fstat(fd.get(), "after the writes");
}

void add_flag_cases(CaseList& list) {
  static constexpr struct {
    const char* name;
    int flags;
  } kFlags[] = {
      {"read", O_RDONLY},
      {"write", O_WRONLY},
      {"readwrite", O_RDWR},
      {"create", O_RDWR | O_CREAT},
      {"exclusive", O_WRONLY | O_CREAT | O_EXCL},
      {"truncate", O_RDWR | O_TRUNC},
      {"create-truncate", O_WRONLY | O_CREAT | O_TRUNC},
      {"append", O_RDWR | O_APPEND},
      {"create-append", O_WRONLY | O_CREAT | O_APPEND},
      {"directory", O_RDONLY | O_DIRECTORY},
      {"nofollow", O_RDWR | O_NOFOLLOW},
      {"create-nofollow", O_WRONLY | O_CREAT | O_NOFOLLOW},
      {"path", O_PATH},
      {"path-nofollow", O_PATH | O_NOFOLLOW},
      {"create-directory-read", O_RDONLY | O_CREAT},
      {"sync", O_RDWR | O_SYNC},
  };
  for (const auto& kind : kFlags) {
    const int flags = kind.flags;
    list.add_for_each(std::string("open ") + kind.name, all_names(),
                      [flags](Side& side, const std::string& name) {
                        const UniqueFd fd = side.open(name, flags);
                        if (!fd) return;
                        if ((flags & O_PATH) != 0) return side.fstat(fd.get(), "of the path");
                        read_and_write(side, fd);
                      });
  }
}

// Creating a file applies the mode and the umask. The descriptor is writable even if the mode has
// no write bit.
void create_with_mode(Side& side) {
  const mode_t before = ::umask(027);
  for (const mode_t mode : {0000u, 0444u, 0666u, 0777u, 0400u}) {
    const std::string name = "mode" + std::to_string(mode);
    if (const UniqueFd fd = side.open(name, O_WRONLY | O_CREAT | O_EXCL, mode)) {
      side.write(fd.get(), "written");
      side.fstat(fd.get(), name);
    }
    side.did("mkdir " + name, ::mkdirat(side.dir(), (name + ".dir").c_str(), mode));
    side.stat(name + ".dir");
  }
  (void)::umask(before);
}

void anonymous_file(Side& side) {
  const UniqueFd fd = side.opened("open(O_TMPFILE)",
                                  ::openat(side.dir(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644));
  if (!fd) return;
  side.write(fd.get(), pattern("anonymous", 3000));
  side.fstat(fd.get(), "anonymous");
  const std::string self = "/proc/self/fd/" + std::to_string(fd.get());
  side.did("linkat", ::linkat(AT_FDCWD, self.c_str(), side.dir(), "named", AT_SYMLINK_FOLLOW));
  side.contents("named");
}

// A change by fcntl(F_SETFL) takes effect with the next call, regardless of the flags of open(2).
void set_status_flags(Side& side, const std::string& name, int opened_with, int set) {
  const UniqueFd fd = side.open(name, O_RDWR | O_CREAT | opened_with);
  if (!fd) return;
  const UniqueFd other = side.open(name, O_RDWR);
  side.did("fcntl(F_SETFL)", ::fcntl(fd.get(), F_SETFL, set));
  constexpr int kShown = O_APPEND | O_NONBLOCK | O_NOATIME | O_DIRECT;
  side.did("fcntl(F_GETFL)", ::fcntl(fd.get(), F_GETFL) & kShown);
  side.pwrite(fd.get(), "put by the case", 3);
  side.did("lseek", ::lseek(fd.get(), 1, SEEK_SET));
  side.write(fd.get(), "at the offset");
  side.pwrite(other.get(), "by another descriptor", 7);
  side.contents(fd.get());
  side.contents(name);
}

void add_status_flag_cases(CaseList& list) {
  static constexpr struct {
    const char* name;
    int opened_with;
    int set;
  } kChanges[] = {
      {"cleared append", O_APPEND, 0}, {"set append", 0, O_APPEND},
      {"cleared direct", O_DIRECT, 0}, {"cleared nonblock", O_NONBLOCK, 0},
      {"set nonblock", 0, O_NONBLOCK}, {"cleared noatime", O_NOATIME, 0},
      {"set noatime", 0, O_NOATIME},
  };
  for (const auto& change : kChanges) {
    list.add_for_each(std::string("F_SETFL ") + change.name, file_names(),
                      [change](Side& side, const std::string& name) {
                        set_status_flags(side, name, change.opened_with, change.set);
                      });
  }
}

// Drops the file from the page cache and then reads it, so that a FUSE file system receives a read
// request.
void read_uncached(Side& side, int fd) {
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  side.contents(fd);
}

void read_without_access_time(Side& side, const std::string& name) {
  struct stat before {};
  struct stat after {};
  side.did("lstat", ::fstatat(side.dir(), name.c_str(), &before, AT_SYMLINK_NOFOLLOW));
  const UniqueFd fd = side.open(name, O_RDONLY | O_NOATIME);
  if (!fd) return;
  read_uncached(side, fd.get());
  side.did("fstat", ::fstat(fd.get(), &after));
  const bool stays = before.st_atim.tv_sec == after.st_atim.tv_sec &&
                     before.st_atim.tv_nsec == after.st_atim.tv_nsec;
  side.note(stays ? "access time stays" : "access time moves");
}

// Sets an access time that is earlier than the modification time, so that a read without O_NOATIME updates the access
// time even with relatime.
void set_noatime(Side& side, const std::string& name, int opened_with, int set) {
  const UniqueFd fd = side.open(name, opened_with);
  if (!fd) return;
  constexpr time_t kAccess = 1'000'000'000;
  const timespec times[2] = {{kAccess, 0}, {kAccess + 1, 0}};
  side.did("futimens", ::futimens(fd.get(), times));
  side.did("fcntl(F_SETFL)", ::fcntl(fd.get(), F_SETFL, set));
  read_uncached(side, fd.get());
  struct stat st {};
  side.did("fstat", ::fstat(fd.get(), &st));
  side.note(st.st_atim.tv_sec == kAccess ? "access time stays" : "access time moves");
}

void add_noatime_cases(CaseList& list) {
  list.add_for_each("O_NOATIME", file_names(), read_without_access_time);
  static constexpr struct {
    const char* name;
    int opened_with;
    int set;
  } kChanges[] = {
      {"read without noatime", O_RDONLY, 0},
      {"read with noatime", O_RDONLY | O_NOATIME, O_NOATIME},
      {"noatime cleared for reads", O_RDONLY | O_NOATIME, 0},
      {"noatime kept for both", O_RDWR | O_NOATIME, O_NOATIME},
      {"noatime cleared for both", O_RDWR | O_NOATIME, 0},
  };
  for (const auto& change : kChanges) {
    list.add_for_each(change.name, file_names(), [change](Side& side, const std::string& name) {
      set_noatime(side, name, change.opened_with, change.set);
    });
  }
  // Leaves out files that have had a writer. If the daemon does not know yet that the writer has closed the file, the
  // daemon opens it as a passthrough file, for which F_SETFL cannot set O_NOATIME (docs/semantics.md).
  const std::vector<std::string> never_written = {"base_file",   "base_readonly",  "moved_file",
                                                  "base_dir/a",  "both_dir/a",     "base_dir/sub/b",
                                                  "moved_dir/a", "moved_dir/sub/b"};
  const auto set_for_reads = [](Side& side, const std::string& name) {
    set_noatime(side, name, O_RDONLY, O_NOATIME);
  };
  list.add_for_each("noatime set for reads", never_written, set_for_reads);
  list.add_for_each("noatime set for reads of a copy", never_written,
                    [=](Side& side, const std::string& name) {
                      side.did("chmod", ::fchmodat(side.dir(), name.c_str(), 0600, 0));
                      set_for_reads(side, name);
                    });
}

// Sets O_DIRECT after the open. Buffers, sizes and offsets must then be aligned on both sides.
void set_direct(Side& side) {
  constexpr std::size_t kAligned = 4096;
  const UniqueFd fd = side.open("direct", O_RDWR | O_CREAT);
  if (!fd) return;
  side.write(fd.get(), pattern("before", kAligned));
  side.did("fcntl(F_SETFL, O_DIRECT)", ::fcntl(fd.get(), F_SETFL, O_DIRECT));
  const std::unique_ptr<char, decltype(&std::free)> bytes(
      static_cast<char*>(std::aligned_alloc(kAligned, kAligned)), &std::free);
  std::memset(bytes.get(), 'd', kAligned);
  side.did("pwrite", ::pwrite(fd.get(), bytes.get(), kAligned, kAligned));
  side.did("pread", ::pread(fd.get(), bytes.get(), kAligned, 0));
  side.did("fcntl(F_SETFL, 0)", ::fcntl(fd.get(), F_SETFL, 0));
  side.pwrite(fd.get(), "not aligned", 5);
  side.contents("direct");
}

void add_name_cases(CaseList& list) {
  list.add("names of 255 and 256 bytes", {"base_dir"}, [](Side& side) {
    for (const std::size_t length : {250u, 251u, 252u, 254u, 255u, 256u}) {
      const std::string name(length, 'n');
      (void)side.open(name, O_WRONLY | O_CREAT);
      side.stat(name);
      side.did("mkdir", ::mkdirat(side.dir(), ("base_dir/" + name).c_str(), 0755));
      side.did("rename", ::renameat(side.dir(), name.c_str(), side.dir(),
                                    ("base_dir/" + name + "x").c_str()));
      side.did("unlink", ::unlinkat(side.dir(), name.c_str(), 0));
    }
  });
  list.add("odd bytes in names", {}, [](Side& side) {
    for (const char* name : {" ", "\n", "a\\b", "\xff\xfe", "-", "~", "#", ".wh", "...", "\x01"}) {
      (void)side.open(name, O_WRONLY | O_CREAT);
      side.stat(name);
    }
    side.list(".");
  });
  list.add("long path", {}, [](Side& side) {
    std::string path(200, 'p');
    while (path.size() < 3000) {
      side.did("mkdir", ::mkdirat(side.dir(), path.c_str(), 0755));
      path += "/" + std::string(200, 'p');
    }
    (void)side.open(path, O_WRONLY | O_CREAT);
  });
}

}  // namespace

void add_open_cases(CaseList& list) {
  add_flag_cases(list);
  add_status_flag_cases(list);
  add_noatime_cases(list);
  list.add("F_SETFL set direct", {}, set_direct);
  list.add("create with mode", {}, create_with_mode);
  list.add("anonymous file", {}, anonymous_file);
  list.add_for_each("open through a trailing slash", all_names(),
                    [](Side& side, const std::string& name) {
                      (void)side.open(name + "/", O_RDONLY);
                      (void)side.open(name + "/", O_WRONLY | O_CREAT);
                      (void)side.open(name + "/.", O_RDONLY);
                      (void)side.open(name + "/..", O_RDONLY);
                    });
  list.add_for_each("overwrite whole", file_names(), [](Side& side, const std::string& name) {
    if (const UniqueFd fd = side.open(name, O_WRONLY | O_CREAT | O_TRUNC)) {
      side.write(fd.get(), pattern("overwritten", 70000));
    }
    side.contents(name);
  });
  add_name_cases(list);
}

}  // namespace cacheshim::parity
