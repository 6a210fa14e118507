// SPDX-License-Identifier: Apache-2.0
#include "bench/race/calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <memory>
#include <system_error>

namespace cacheshim::race {
namespace {

[[noreturn]] void fail(const char* call, const std::string& path, int error) {
  throw std::system_error(error, std::generic_category(), std::string(call) + " '" + path + "'");
}

void check(int result, const char* call, const std::string& path) {
  if (result != 0) fail(call, path, errno);
}

struct CloseDirectory {
  void operator()(DIR* directory) const { (void)::closedir(directory); }  // an error is harmless
};

// Calls visit(name) for each entry except "." and "..", and returns their number.
template <typename Visit>
size_t each_entry(const std::string& path, Visit visit) {
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(path.c_str()));
  if (!directory) fail("opendir", path, errno);
  size_t entries = 0;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    ++entries;
    visit(entry->d_name);
  }
  if (errno != 0) fail("readdir", path, errno);
  return entries;
}

}  // namespace

UniqueFd open_file(const std::string& path, int flags, mode_t mode) {
  UniqueFd file(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!file) fail("open", path, errno);
  return file;
}

void write_whole(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) fail("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void close_file(UniqueFd file, const std::string& path) {
  check(::close(file.release()), "close", path);
}

void write_file(const std::string& path, std::string_view bytes) {
  UniqueFd file = open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  write_whole(file.get(), bytes, path);
  close_file(std::move(file), path);
}

size_t read_file(const std::string& path) {
  // The buffer is page-aligned, so that its offset in a page is the same for all contestants. The
  // offset of a heap buffer depends on the lengths of the paths; some offsets made hits 3 % slower.
  alignas(4096) static char buffer[size_t{64} * 1024];
  const UniqueFd file = open_file(path, O_RDONLY);
  struct stat status {};
  check(::fstat(file.get(), &status), "fstat", path);
  const auto size_bytes = static_cast<size_t>(status.st_size);
  size_t done = 0;
  while (done < size_bytes) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0) fail("read", path, errno);
    if (got == 0) fail("read to the size that fstat reported", path, EIO);
    done += static_cast<size_t>(got);
  }
  return done;
}

size_t list_directory(const std::string& path) {
  return each_entry(path, [](const char*) {});
}

size_t scan_directory(const std::string& path) {
  return each_entry(path, [entry = path + '/', length = path.size() + 1](const char* name) mutable {
    entry.replace(length, std::string::npos, name);
    struct stat status {};
    check(::lstat(entry.c_str(), &status), "lstat", entry);
  });
}

void make_directory(const std::string& path) { check(::mkdir(path.c_str(), 0755), "mkdir", path); }

void ensure_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) fail("mkdir", path, errno);
}

void remove_directory(const std::string& path) { check(::rmdir(path.c_str()), "rmdir", path); }

void rename_file(const std::string& from, const std::string& to) {
  check(::rename(from.c_str(), to.c_str()), "rename", from);
}

void expect_present(const std::string& path) {
  struct stat status {};
  check(::stat(path.c_str(), &status), "stat", path);
}

void expect_absent(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) fail("stat of an absent name", path, EEXIST);
  if (errno != ENOENT) fail("stat", path, errno);
}

}  // namespace cacheshim::race
