// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/attacker/world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <utility>

namespace attacker {
namespace {

constexpr std::size_t kMostFiles = 24;
constexpr std::size_t kMostMappings = 6;
constexpr std::size_t kMostDepth = 3;
constexpr off_t kMostOffset = off_t{1} << 20;
constexpr std::size_t kEntries = 6;
constexpr off_t kPageBytes = 4096;

}  // namespace

int Random::flags(std::initializer_list<int> flags) {
  int combined = 0;
  for (const int flag : flags) {
    if (one_in(3)) combined |= flag;
  }
  return combined;
}

World::World(std::string mount, std::uint64_t seed)
    : random_(seed), mount_(std::move(mount)), memory_(kMostBytes) {
  for (char& byte : memory_) byte = static_cast<char>(random_.number());
}

std::string World::entry_name() { return "KEY" + std::to_string(random_.below(kEntries)); }

std::string World::name() {
  if (random_.one_in(3)) return entry_name();
  if (random_.one_in(12)) {
    return random_.pick<std::string>({std::string(255, 'n'), std::string(253, '\xfe'),
                                      std::string(256, 'x'), "\xff\xfe\n\x1b[2J", ".wh.a",
                                      ".wh.KEY1", ".wh..wh..opq", ".wh..wh.plnk",
                                      ".fuse_hidden0001", ".cacheshim", "a b\\"});
  }
  return random_.pick<std::string>({"a", "b", "c", "d", "e", "f", ".", "a.lock", "lock", "k.json",
                                    "k.so", "k.cubin", "__grp__k.json", "k.tmp", "tmp.pid_1_a"});
}

std::string World::path() {
  std::string path = mount_;
  if (random_.one_in(20)) {
    path += random_.pick<const char*>({"", "/.jobs", "/.cacheshim", "/.cacheshim/jobs",
                                       "/.cacheshim/status", "/.cacheshim/stats",
                                       "/.cacheshim/control", "/.cacheshim/flights"});
  } else if (random_.one_in(8)) {
    path += "/.jobs/" + random_.pick<std::string>({"team", "one", "uid-20004", "uid-0", name()});
  }
  path +=
      '/' + random_.pick<std::string>({"triton", "triton", "triton", "other", "inductor", name()});
  for (std::size_t depth = random_.below(kMostDepth + 1); depth > 0; --depth) path += '/' + name();
  if (random_.one_in(30)) path += '/';
  return path;
}

World::Place World::place() {
  if (random_.one_in(3)) return {file(), name()};
  if (random_.one_in(4)) return {AT_FDCWD, name()};
  if (random_.one_in(10)) return {file(), ""};
  return {AT_FDCWD, path()};
}

int World::file() {
  if (files_.empty() || random_.one_in(50)) return random_.pick({-1, AT_FDCWD, 999});
  return files_[random_.below(files_.size())];
}

void World::keep(int fd) {
  if (fd < 0) return;
  if (files_.size() >= kMostFiles) close_file();
  files_.push_back(fd);
}

void World::close_file() {
  if (files_.empty()) return;
  const std::size_t at = random_.below(files_.size());
  (void)::close(files_[at]);
  files_.erase(files_.begin() + static_cast<std::ptrdiff_t>(at));
}

char* World::buffer() {
  if (mappings_.empty() || !random_.one_in(4)) return memory_.data();
  return mappings_[random_.below(mappings_.size())].start;
}

std::size_t World::size() {
  return random_.one_in(3) ? random_.below(64) : random_.below(kMostBytes + 1);
}

off_t World::offset() {
  if (random_.one_in(40)) {
    return random_.pick<off_t>({-1, std::numeric_limits<off_t>::max(), off_t{1} << 40});
  }
  return random_.one_in(2) ? 0 : static_cast<off_t>(random_.below(kMostOffset));
}

// Each mapping has room for kMostBytes, so that a call never writes beyond its end.
void World::map_file() {
  if (mappings_.size() >= kMostMappings) unmap();
  const int protection = random_.pick({PROT_READ, PROT_READ | PROT_WRITE});
  const int kind = random_.pick({MAP_SHARED, MAP_PRIVATE}) | random_.flags({MAP_POPULATE});
  const off_t offset = kPageBytes * static_cast<off_t>(random_.below(16));
  void* const start = ::mmap(nullptr, kMostBytes, protection, kind, file(), offset);
  if (start != MAP_FAILED) mappings_.push_back({static_cast<char*>(start), kMostBytes});
}

void World::unmap() {
  if (mappings_.empty()) return;
  const std::size_t at = random_.below(mappings_.size());
  (void)::munmap(mappings_[at].start, mappings_[at].length);
  mappings_.erase(mappings_.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace attacker
