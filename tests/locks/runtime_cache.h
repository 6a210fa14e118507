// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "locks/file_lock.h"

// An example that uses FileLock: a cache in which a runtime keeps its compiled kernels. The cache is one file, which
// many processes share. A process holds a shared lock while it loads the file. To save, it takes an exclusive lock and
// merges its entries with those that other processes have saved since then. See docs/locks.md.
namespace cacheshim::example {

class RuntimeCache {
 public:
  explicit RuntimeCache(std::string path) : path_(std::move(path)) {}

  // Sets `entries` to the content of the file, one entry per line, or to "" if there is no file yet.
  // Errors: those of the lock, which times out after `timeout`; kCannotOpen if the file cannot be read.
  FileLock::Result load(std::string& entries,
                        std::chrono::milliseconds timeout = FileLock::kDefaultTimeout) const;
  // Adds `entries`, one per line, to those in the file. On error the file is unchanged.
  FileLock::Result save(const std::string& entries,
                        std::chrono::milliseconds timeout = FileLock::kDefaultTimeout) const;
  // Like save(), but for destructors: does not wait for the lock, and reports an error only on
  // stderr.
  void save_at_exit(const std::string& entries) const noexcept;

 private:
  std::string path_;
};

}  // namespace cacheshim::example
