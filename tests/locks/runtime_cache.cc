// SPDX-License-Identifier: Apache-2.0
#include "tests/locks/runtime_cache.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <set>
#include <sstream>

namespace cacheshim::example {
namespace {

std::set<std::string> read_lines(std::istream& stream) {
  std::set<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.insert(line);
  }
  return lines;
}

// Writes a new file beside `path` and renames it to `path`, so that a process that reads without a
// lock sees either the old or the new content. Returns false on failure.
bool write_whole(const std::string& path, const std::set<std::string>& lines) {
  const std::string staged = path + ".new." + std::to_string(::getpid());
  {
    std::ofstream file(staged, std::ios::trunc);
    for (const std::string& line : lines) file << line << '\n';
    file.flush();
    if (!file) return false;
  }
  return std::rename(staged.c_str(), path.c_str()) == 0;
}

}  // namespace

FileLock::Result RuntimeCache::load(std::string& entries, std::chrono::milliseconds timeout) const {
  FileLock lock(path_);
  if (auto refused = lock.try_lock_for(timeout, FileLock::Mode::kShared)) return refused;
  std::ifstream file(path_);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  entries = text.str();
  return {};
}

FileLock::Result RuntimeCache::save(const std::string& entries,
                                    std::chrono::milliseconds timeout) const {
  FileLock lock(path_);
  if (auto refused = lock.try_lock_for(timeout)) return refused;
  std::ifstream file(path_);
  std::set<std::string> all = read_lines(file);
  std::istringstream added(entries);
  all.merge(read_lines(added));
  if (!write_whole(path_, all)) {
    return LockError{LockError::Reason::kCannotOpen, errno, path_};
  }
  return {};
}

void RuntimeCache::save_at_exit(const std::string& entries) const noexcept {
  try {
    if (const auto refused = save(entries, std::chrono::milliseconds(0))) {
      std::fprintf(stderr, "the runtime cache is not saved: %s\n", refused->message().c_str());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the runtime cache is not saved: %s\n", error.what());
  }
}

}  // namespace cacheshim::example
