// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "common/unique_fd.h"

// The system calls that a cache's user makes. If a call fails, these functions throw std::system_error with the names
// of the call and the path, because a failed operation makes the whole race invalid.
namespace cacheshim::race {

UniqueFd open_file(const std::string& path, int flags, mode_t mode = 0);
void write_whole(int fd, std::string_view bytes, const std::string& path);
// Closes `file` and throws if that fails, because some file systems write the data only at close.
void close_file(UniqueFd file, const std::string& path);

// Creates or truncates a file, writes it and closes it.
void write_file(const std::string& path, std::string_view bytes);
// Makes the calls of a cache hit: open, fstat, read of the whole file, close. Returns the number of
// bytes.
size_t read_file(const std::string& path);
// Calls opendir, reads all entries, calls closedir. Returns the number of entries without "." and
// "..".
size_t list_directory(const std::string& path);
// As list_directory(), but also calls lstat for the path of each entry, as Python's os.scandir() and
// DirEntry.stat() do.
size_t scan_directory(const std::string& path);

void make_directory(const std::string& path);
// Creates the last component of the path; it may already exist.
void ensure_directory(const std::string& path);
void remove_directory(const std::string& path);
void rename_file(const std::string& from, const std::string& to);

void expect_present(const std::string& path);
void expect_absent(const std::string& path);

}  // namespace cacheshim::race
