// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace calls {
namespace {

std::set<std::string> visited;

void say_visited() {
  for (const std::string& path : visited) say("  " + path);
  visited.clear();
}

void list() {
  for (const std::string& path : {at("list"), at("missing"), at("list/one")}) {
    DIR* const directory = CALL(opendir, path.c_str());
    if (directory == nullptr) continue;
    while (const dirent* entry = ::readdir(directory)) visited.insert(entry->d_name);
    ::closedir(directory);
    say_visited();
  }
}

// Calls read(entry) until it returns false, and prints the names of the entries.
template <class Entry, class Read>
void read_all(Read read) {
  Entry* entry = nullptr;
  while (read(entry)) visited.insert(entry->d_name);
  say_visited();
}

void use_stream() {
  DIR* const stream = ::opendir(at("list").c_str());
  const auto rewind = reinterpret_cast<decltype(&::rewinddir)>(find("rewinddir"));
  const auto seek = reinterpret_cast<decltype(&::seekdir)>(find("seekdir"));
  say(CALL(dirfd, stream) > 2 ? "  a descriptor" : "  none");
  read_all<dirent>([&](auto& entry) { return (entry = CALL(readdir, stream)) != nullptr; });
  const long end = ::telldir(stream);
  rewind(stream);
  read_all<dirent64>([&](auto& entry) { return (entry = CALL(readdir64, stream)) != nullptr; });
  seek(stream, 0);
  dirent room;
  read_all<dirent>(
      [&](auto& entry) { return CALL(readdir_r, stream, &room, &entry) == 0 && entry != nullptr; });
  rewind(stream);
  dirent64 large_room;
  read_all<dirent64>([&](auto& entry) {
    return CALL(readdir64_r, stream, &large_room, &entry) == 0 && entry != nullptr;
  });
  seek(stream, end);
  (void)CALL(readdir, stream);
  (void)CALL(closedir, stream);
  (void)CALL(closedir, static_cast<DIR*>(nullptr));
}

template <class Entry>
void use_entries(int count, Entry**& entries) {
  for (int i = 0; i < count; ++i) {
    visited.insert(entries[i]->d_name);
    std::free(entries[i]);
  }
  if (count >= 0) std::free(entries);
  say_visited();
}

void scan() {
  for (const std::string& path : {at("list"), at("missing")}) {
    const char* const p = path.c_str();
    dirent** plain = nullptr;
    dirent64** large = nullptr;
    use_entries(CALL(scandir, p, &plain, nullptr, ::alphasort), plain);
    use_entries(CALL(scandir64, p, &large, nullptr, ::alphasort64), large);
    use_entries(CALL(scandirat, AT_FDCWD, p, &plain, nullptr, ::alphasort), plain);
    use_entries(CALL(scandirat64, -1, p, &large, nullptr, ::alphasort64), large);
  }
}

template <class Glob>
void use_matches(Glob& found) {
  for (std::size_t i = 0; i < found.gl_pathc; ++i) {
    say(std::string("  ") + found.gl_pathv[found.gl_offs + i]);
  }
}

void match() {
  for (const char* name : {"list/*", "list/missing*", "list/{one,sub/*}", "list/one", "*/sub"}) {
    const std::string pattern = at(name);
    glob_t plain{};
    (void)CALL(glob, pattern.c_str(), GLOB_BRACE | GLOB_MARK, nullptr, &plain);
    use_matches(plain);
    ::globfree(&plain);
    glob64_t large{};
    (void)CALL(glob64, pattern.c_str(), GLOB_BRACE | GLOB_NOCHECK, nullptr, &large);
    use_matches(large);
    ::globfree64(&large);
  }
  glob_t both{};
  both.gl_offs = 2;
  (void)CALL(glob, "/et[c]", GLOB_DOOFFS, nullptr, &both);
  (void)CALL(glob, at("list/o*").c_str(), GLOB_DOOFFS | GLOB_APPEND, nullptr, &both);
  use_matches(both);
  ::globfree(&both);
}

int visit(const char* path, const struct stat*, int kind) {
  visited.insert(std::string(path) + " " + std::to_string(kind));
  return 0;
}

int visit64(const char* path, const struct stat64*, int kind) { return visit(path, nullptr, kind); }

int visit_placed(const char* path, const struct stat*, int kind, FTW* place) {
  return visit((std::string(path) + " base " + (path + place->base)).c_str(), nullptr, kind);
}

int visit64_placed(const char* path, const struct stat64*, int kind, FTW* place) {
  return visit_placed(path, nullptr, kind, place);
}

int stop(const char*, const struct stat*, int) { return 77; }

// When the first walk visits its top directory, starts a second walk from within the callback.
int visit_outer(const char* path, const struct stat*, int kind) {
  if (std::strcmp(path, at("list").c_str()) == 0) (void)::ftw(at("list/sub").c_str(), visit, 4);
  return visit(path, nullptr, kind + 100);
}

void walk() {
  for (const std::string& path : {at("list"), at("missing"), at("list/one")}) {
    const char* const p = path.c_str();
    (void)CALL(ftw, p, visit, 4);
    say_visited();
    (void)CALL(ftw64, p, visit64, 4);
    say_visited();
    (void)CALL(nftw, p, visit_placed, 4, FTW_PHYS | FTW_DEPTH);
    say_visited();
    (void)CALL(nftw64, p, visit64_placed, 4, FTW_PHYS | FTW_CHDIR);
    say_visited();
    (void)CALL(ftw, p, stop, 4);
    (void)CALL(ftw, p, visit_outer, 4);
    say_visited();
  }
}

void watch() {
  const int fd = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  (void)CALL(inotify_add_watch, fd, at("list").c_str(), std::uint32_t{IN_CREATE});
  (void)CALL(inotify_add_watch, fd, at("missing").c_str(), std::uint32_t{IN_CREATE});
  write_file(at("list/watched"), "x");
  alignas(inotify_event) char events[4096];
  say(::read(fd, events, sizeof events) > 0 ? "  an event" : "  no event");
  ::close(fd);
}

}  // namespace

void run_directory_calls() {
  if (::mkdir(at("list").c_str(), 0700) != 0) say("no directory");
  if (::mkdir(at("list/sub").c_str(), 0700) != 0) say("no directory");
  for (const char* name : {"list/one", "list/other", "list/sub/deep"}) write_file(at(name), "x");
  list();
  use_stream();
  scan();
  match();
  walk();
  watch();
}

}  // namespace calls
