// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cacheshim::race {

inline constexpr unsigned kFilesPerKey = 8;
// The last file of a Triton kernel, which completes its entry.
inline constexpr unsigned kCompletingFile = 7;
inline constexpr size_t kLargestFileBytes = 60 * 1024;

// One step of the splitmix64 generator: spreads the bits of `value` evenly.
uint64_t mix(uint64_t value);

// Returns a key in Triton's form, 52 letters and digits. The same number always gives the same key.
std::string key_name(uint64_t number);

std::string file_name(unsigned file);

// Returns a file's content, the same in every run. Requires: size_bytes <= kLargestFileBytes.
std::string_view content(size_t size_bytes);

// Returns the content of a kernel's completing file: valid JSON that names no path.
std::string completing_content(size_t size_bytes);

// A cache directory of `keys` keys with kFilesPerKey files of 1 to 60 KiB each, or of empty files. A file's name and
// size depend only on the numbers of the key and the file, so that every program can compute them.
struct Tree {
  std::string root;
  unsigned keys = 0;
  bool empty_files = false;

  std::string key_path(unsigned key) const;
  std::string file_path(unsigned key, unsigned file) const;
  size_t size_bytes(unsigned key, unsigned file) const;
};

// Makes the directory contain this tree: writes each file that is missing or has the wrong size, and
// removes other keys. Does not remove other files from the tree's keys. Throws std::system_error.
void make_tree(const Tree& tree);

// Reads every file once, so that the page cache holds it. Throws std::system_error.
void read_tree(const Tree& tree);

}  // namespace cacheshim::race
