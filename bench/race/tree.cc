// SPDX-License-Identifier: Apache-2.0
#include "bench/race/tree.h"

#include <fcntl.h>

#include <array>
#include <filesystem>
#include <string>
#include <unordered_set>

#include "bench/race/calls.h"

namespace cacheshim::race {
namespace {

constexpr std::array<const char*, kFilesPerKey> kFileNames = {
    "kernel.cubin",  "kernel.json",  "kernel.llir", "kernel.ptx",
    "kernel.source", "kernel.ttgir", "kernel.ttir", "__grp__kernel.json"};

std::string make_pattern() {
  std::string pattern(kLargestFileBytes, '\0');
  for (size_t at = 0; at < pattern.size(); ++at) {
    pattern[at] = static_cast<char>('a' + mix(at) % 26);
  }
  return pattern;
}

void remove_foreign_keys(const Tree& tree) {
  std::unordered_set<std::string> own;
  for (unsigned key = 0; key < tree.keys; ++key) own.insert(key_name(key));
  for (const auto& entry : std::filesystem::directory_iterator(tree.root)) {
    if (!own.contains(entry.path().filename())) std::filesystem::remove_all(entry.path());
  }
}

std::string content_of(unsigned file, size_t size_bytes) {
  if (file == kCompletingFile && size_bytes > 0) return completing_content(size_bytes);
  return std::string(content(size_bytes));
}

void ensure_file(const Tree& tree, unsigned key, unsigned file) {
  const std::string path = tree.file_path(key, file);
  const size_t size_bytes = tree.size_bytes(key, file);
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && static_cast<size_t>(status.st_size) == size_bytes) {
    return;
  }
  write_file(path, content_of(file, size_bytes));
}

}  // namespace

uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

std::string key_name(uint64_t number) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  std::string name(52, '\0');
  uint64_t bits = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    if (at % 12 == 0) bits = mix(number * 8 + at / 12);
    name[at] = kDigits[bits % kDigits.size()];
    bits /= kDigits.size();
  }
  return name;
}

std::string file_name(unsigned file) { return kFileNames.at(file); }

std::string_view content(size_t size_bytes) {
  static const std::string pattern = make_pattern();
  return std::string_view(pattern).substr(0, size_bytes);
}

std::string completing_content(size_t size_bytes) {
  std::string text = R"({"child_paths": {}})";
  text.resize(size_bytes, ' ');
  return text;
}

std::string Tree::key_path(unsigned key) const { return root + '/' + key_name(key); }

std::string Tree::file_path(unsigned key, unsigned file) const {
  return key_path(key) + '/' + file_name(file);
}

size_t Tree::size_bytes(unsigned key, unsigned file) const {
  if (empty_files) return 0;
  constexpr size_t kSmallest = 1024;
  const uint64_t number = uint64_t{key} * kFilesPerKey + file;
  return kSmallest + mix(number) % (kLargestFileBytes - kSmallest + 1);
}

void make_tree(const Tree& tree) {
  std::filesystem::create_directories(tree.root);
  remove_foreign_keys(tree);
  for (unsigned key = 0; key < tree.keys; ++key) {
    std::filesystem::create_directory(tree.key_path(key));
    for (unsigned file = 0; file < kFilesPerKey; ++file) ensure_file(tree, key, file);
  }
}

void read_tree(const Tree& tree) {
  for (unsigned key = 0; key < tree.keys; ++key) {
    for (unsigned file = 0; file < kFilesPerKey; ++file) read_file(tree.file_path(key, file));
  }
}

}  // namespace cacheshim::race
