// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

namespace attacker {

// Random numbers that repeat with the same seed, on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : source_(seed) {}
  std::uint64_t number() { return source_(); }
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(source_() % end); }
  bool one_in(std::size_t count) { return below(count) == 0; }
  // A random combination of the flags.
  int flags(std::initializer_list<int> flags);
  template <class Value>
  Value pick(std::initializer_list<Value> values) {
    return values.begin()[below(values.size())];
  }

 private:
  std::mt19937_64 source_;
};

// The arguments of the random calls of one process: the names of a small tree, the open files, and memory. No path
// contains "..", so no call leaves the mount.
class World {
 public:
  struct Place {  // arguments of a call such as openat
    int directory;
    std::string path;
  };

  World(std::string mount, std::uint64_t seed);

  Random& random() { return random_; }
  const std::string& mount() const { return mount_; }

  std::string name();  // a component of a path
  std::string path();  // a path in the mount, most often in the caller's view
  Place place();       // a name or a path, and the directory to which it is relative
  std::string entry_name();

  int file();         // an open descriptor, or sometimes an invalid one
  void keep(int fd);  // owns `fd` if it is valid; closes another descriptor if there are too many
  void close_file();

  // Memory for the data of a call. It may be a mapping of a file on the mount, so an access may fault.
  char* buffer();
  std::size_t size();  // at most kMostBytes
  off_t offset();
  void map_file();
  void unmap();

  static constexpr std::size_t kMostBytes = 64 << 10;

 private:
  struct Mapping {
    char* start;
    std::size_t length;
  };

  Random random_;
  const std::string mount_;
  std::vector<int> files_;
  std::vector<Mapping> mappings_;
  std::vector<char> memory_;
};

}  // namespace attacker
