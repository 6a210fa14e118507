// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

// What a call pays whose path is none of ours: one look at the path's text.
//
// After a system call little of this library is left in the processor's first cache, and a line that has
// to be fetched again costs more than a compare. So all that is asked for here lies in one line, and
// ".." is looked for in place and not by a function of libc.
namespace cacheshim {

class alignas(64) PathGate {
 public:
  // Nothing passes before. What is added must be added by then.
  void open() { is_open_.store(true, std::memory_order_relaxed); }

  // Paths pass that begin with '/' and `second`, or relative ones that begin with `first`; and all that
  // have "..", which may lead anywhere.
  void add_absolute(char second) { absolute_.add(second); }
  void add_relative(char first) { relative_.add(first); }

  bool lets_pass(const char* path) const {
    if (!is_open_.load(std::memory_order_relaxed)) return false;
    const bool begins = path[0] == '/' ? absolute_.has(path[1]) : relative_.has(path[0]);
    return begins || has_two_dots(path);
  }

 private:
  // Of ASCII; a byte beyond it counts as the one with the same lower bits.
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

  // A search for one byte costs a quarter of one for three, and few paths have many dots.
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
