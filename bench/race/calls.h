// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "common/unique_fd.h"

// The system calls of a cache's user. A failure throws std::system_error with the call and the
// path: a race in which an operation failed has no result.
namespace cacheshim::race {

UniqueFd open_file(const std::string& path, int flags, mode_t mode = 0);
void write_whole(int fd, std::string_view bytes, const std::string& path);
// Closes `file` and throws if that fails: data may be written as late as this.
void close_file(UniqueFd file, const std::string& path);

// Creates or truncates, writes, closes.
void write_file(const std::string& path, std::string_view bytes);
// open, fstat, read whole, close: the calls of a hit in a cache. Returns the number of bytes.
size_t read_file(const std::string& path);
// opendir, all entries, closedir. Returns the number of entries without "." and "..".
size_t list_directory(const std::string& path);
// The same with an lstat of each entry by its path, as in Python's os.scandir() and
// DirEntry.stat().
size_t scan_directory(const std::string& path);

void make_directory(const std::string& path);
// Creates the last directory as `mkdir -p` does: it may exist.
void ensure_directory(const std::string& path);
void remove_directory(const std::string& path);
void rename_file(const std::string& from, const std::string& to);

void expect_present(const std::string& path);
void expect_absent(const std::string& path);

}  // namespace cacheshim::race
