// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

#include <cstring>

namespace calls {
namespace {

constexpr std::size_t kRoom = PATH_MAX;
char room[kRoom];

void say_path(const char* path) { say(std::string("  ") + (path == nullptr ? "(null)" : path)); }

void say_and_free(char* path) {
  say_path(path);
  std::free(path);
}

void say_link(ssize_t length) {
  if (length > 0) say("  " + std::string(room, static_cast<std::size_t>(length)));
}

void read_links(const char* path) {
  for (const std::size_t size : {kRoom, std::size_t{7}, std::size_t{0}}) {
    say_link(CALL(readlink, path, room, size));
    say_link(CALL(readlinkat, AT_FDCWD, path, room, size));
    say_link(CALL(__readlink_chk, path, room, size, kRoom));
    say_link(CALL(__readlinkat_chk, -1, path, room, size, kRoom));
  }
}

void read_own_links() {
  const int fd = ::open(at("resolve/file").c_str(), O_RDONLY);
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  read_links(link.c_str());
  say_path(CALL(realpath, link.c_str(), room));
  const int links = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
  say_link(CALL(readlinkat, links, std::to_string(fd).c_str(), room, kRoom));
  say_link(CALL(readlink, "/proc/self/cwd", room, kRoom));
  (void)CALL(readlinkat, fd, "", room, kRoom);
  (void)CALL(readlink, link.c_str(), static_cast<char*>(nullptr), kRoom);
  ::close(links);
  ::close(fd);
}

void resolve(const char* path) {
  say_and_free(CALL(realpath, path, nullptr));
  say_and_free(CALL(__realpath_chk, path, nullptr, kRoom));
  say_and_free(CALL(canonicalize_file_name, path));
  for (int i = 0; i < 2; ++i) {
    room[0] = '\0';
    const char* const resolved =
        i == 0 ? CALL(realpath, path, room) : CALL(__realpath_chk, path, room, kRoom);
    say_path(resolved);
    if (resolved == nullptr) say_path(room);  // contains the path up to the component that failed
  }
}

void say_directory() {
  say_path(CALL(getcwd, room, kRoom));
  say_path(CALL(getwd, room));
  say_and_free(CALL(getcwd, nullptr, 0u));
  say_and_free(CALL(getcwd, nullptr, kRoom));
  say_and_free(CALL(get_current_dir_name));
  say_path(CALL(__getcwd_chk, room, kRoom, kRoom));
  say_path(CALL(__getwd_chk, room, kRoom));
  const std::size_t length = std::strlen(room);
  say_path(CALL(getcwd, room, length + 1));
  (void)CALL(getcwd, room, length);
  (void)CALL(getcwd, nullptr, length);
  (void)CALL(getcwd, room, 0u);
  (void)CALL(getcwd, nullptr, 1u);
}

int openable(const char* path) {
  const int fd = CALL(open, path, O_RDONLY);
  if (fd >= 0) ::close(fd);
  return fd;
}

void go(const std::string& path) {
  (void)CALL(chdir, path.c_str());
  say_directory();
  for (const char* name : {"file", "sub/deep", "../resolve/file", "sub/../file", "../file",
                           "../../resolve/file", "../../list/one", "to-sub/../file", "."}) {
    (void)openable(name);
    struct stat status;
    (void)CALL(stat, name, &status);
    say_path(CALL(realpath, name, room));
  }
}

// Resolves relative paths with ".." from a directory in a route. Some paths stay in the route; others lead out of it.
void climb() {
  const std::string top = root.substr(root.rfind('/') + 1);
  const int directory = ::open(at("resolve/sub").c_str(), O_RDONLY | O_DIRECTORY);
  for (const std::string& path :
       {std::string("../file"), "../../" + std::string("resolve/file"),
        "../../../" + top + "/resolve/file", std::string("../../../nothing-there")}) {
    const int fd = CALL(openat, directory, path.c_str(), O_RDONLY);
    if (fd >= 0) ::close(fd);
    (void)CALL(faccessat, directory, path.c_str(), R_OK, 0);
  }
  (void)CALL(fchdir, directory);
  say_directory();
  (void)openable(("../../../" + top + "/resolve/file").c_str());
  (void)CALL(fchdir, -1);
  ::close(directory);
}

}  // namespace

void run_resolve_calls() {
  const int home = ::open(".", O_RDONLY | O_DIRECTORY);
  for (const char* name : {"resolve", "resolve/sub"}) (void)::mkdir(at(name).c_str(), 0700);
  for (const char* name : {"resolve/file", "resolve/sub/deep"}) write_file(at(name), "x");
  (void)::symlink("sub/deep", at("resolve/link").c_str());
  (void)::symlink("sub", at("resolve/to-sub").c_str());
  (void)::symlink("nowhere", at("resolve/lost").c_str());
  for (const char* name : {"link", "file", "missing", "file/x", "lost", "to-sub/../link"}) {
    read_links(at(("resolve/" + std::string(name)).c_str()).c_str());
    resolve(at(("resolve/" + std::string(name)).c_str()).c_str());
  }
  resolve(nullptr);
  resolve("");
  (void)CALL(readlink, static_cast<const char*>(nullptr), room, kRoom);
  read_own_links();
  go(at("resolve"));
  go("sub");
  go("../to-sub");
  go(at("resolve/sub/.."));
  go(at("resolve/missing"));
  go(at("resolve/file"));
  (void)CALL(chdir, static_cast<const char*>(nullptr));
  read_own_links();
  climb();
  go(root + "/resolve//sub/");
  (void)CALL(fchdir, home);
  ::close(home);
}

}  // namespace calls
