// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

// Checks a path's first characters, and whether it contains "..", to decide whether the path may lead into a cache. For
// a path outside all caches, this check is the library's whole cost.
//
// After a system call, little of this library is left in the processor's first-level cache, and
// fetching a line again takes longer than a comparison. So all data for this check is in one cache
// line.
namespace cacheshim {

class alignas(64) PathGate {
 public:
  // Call after all prefixes have been added. Before this call, lets_pass() returns false.
  void open() { is_open_.store(true, std::memory_order_relaxed); }

  // Adds paths that pass: absolute paths with the second character `second`, and relative paths
  // that begin with `first`. Paths with ".." may lead anywhere, so all of them pass.
  void add_absolute(char second) { absolute_.add(second); }
  void add_relative(char first) { relative_.add(first); }

  bool lets_pass(const char* path) const {
    if (!is_open_.load(std::memory_order_relaxed)) return false;
    const bool begins = path[0] == '/' ? absolute_.has(path[1]) : relative_.has(path[0]);
    return begins || has_two_dots(path);
  }

 private:
  // A set of ASCII characters; a byte beyond ASCII counts as the character with the same lower 7
  // bits.
  class Bytes {
   public:
    constexpr void add(char c) { words_[index(c)] |= bit(c); }
    constexpr bool has(char c) const { return (words_[index(c)] & bit(c)) != 0; }

   private:
    static constexpr unsigned index(char c) { return (static_cast<unsigned char>(c) >> 6) & 1U; }
    static constexpr std::uint64_t bit(char c) {
      return std::uint64_t{1} << (static_cast<unsigned char>(c) & 63);
    }
    std::uint64_t words_[2] = {};
  };

  // Searches for one dot at a time: a search for one byte takes a quarter of the time of a search
  // for the three bytes of "/..", and few paths have many dots.
  static bool has_two_dots(const char* path) {
    for (const char* dot = path; (dot = std::strchr(dot, '.')) != nullptr; ++dot) {
      if (dot[1] == '.') return true;
    }
    return false;
  }

  std::atomic<bool> is_open_{false};
  Bytes absolute_;
  Bytes relative_;
};

}  // namespace cacheshim
