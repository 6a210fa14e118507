// SPDX-License-Identifier: Apache-2.0
#include "tests/locks/runtime_cache.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace cacheshim::example {
namespace {

std::set<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::set<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.insert(line);
  }
  return lines;
}

// Returns the content of the file, or "" if there is no file. On error, returns nothing and sets errno.
std::optional<std::string> read_whole(const std::string& path) {
  std::ifstream file(path);
  if (!file) return errno == ENOENT ? std::optional<std::string>("") : std::nullopt;
  std::string text;
  char part[4096];
  while (file.read(part, sizeof part) || file.gcount() > 0) {
    text.append(part, static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) return std::nullopt;
  return text;
}

// Writes a new file beside `path` and renames it to `path`, so that a process that reads without a
// lock sees either the old or the new content. Returns false on failure.
bool write_whole(const std::string& path, const std::set<std::string>& lines) {
  const std::string staged = path + ".new." + std::to_string(::getpid());
  {
    std::ofstream file(staged, std::ios::trunc);
    for (const std::string& line : lines) file << line << '\n';
    file.flush();
    if (file && std::rename(staged.c_str(), path.c_str()) == 0) return true;
  }
  const int error = errno;
  (void)std::remove(staged.c_str());
  errno = error;
  return false;
}

}  // namespace

FileLock::Result RuntimeCache::load(std::string& entries, std::chrono::milliseconds timeout) const {
  FileLock lock(path_);
  if (auto refused = lock.try_lock_for(timeout, FileLock::Mode::kShared)) return refused;
  const auto text = read_whole(path_);
  if (!text) return LockError{LockError::Reason::kCannotOpen, errno, path_};
  entries = *text;
  return {};
}

FileLock::Result RuntimeCache::save(const std::string& entries,
                                    std::chrono::milliseconds timeout) const {
  FileLock lock(path_);
  if (auto refused = lock.try_lock_for(timeout)) return refused;
  const auto text = read_whole(path_);
  if (text && write_whole(path_, lines_of(*text + '\n' + entries))) return {};
  return LockError{LockError::Reason::kCannotOpen, errno, path_};
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
