// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "locks/file_lock.h"

// An example that uses FileLock: a cache in one file that many processes share, in which a runtime
// keeps its compiled kernels. A process loads it under a shared lock. To save, it takes the
// exclusive lock and merges its entries with those that others have saved meanwhile. See
// docs/locks.md.
namespace cacheshim::example {

class RuntimeCache {
 public:
  explicit RuntimeCache(std::string path) : path_(std::move(path)) {}

  // Sets `entries` to the content of the file, one entry per line; to "" if there is no file yet.
  // Errors: those of the lock, which times out after `timeout`.
  FileLock::Result load(std::string& entries,
                        std::chrono::milliseconds timeout = FileLock::kDefaultTimeout) const;
  // Adds `entries` to those in the file. On error the file is unchanged.
  FileLock::Result save(const std::string& entries,
                        std::chrono::milliseconds timeout = FileLock::kDefaultTimeout) const;
  // Does the same for use in a destructor: an error is reported on stderr and has no other effect.
  void save_at_exit(const std::string& entries) const noexcept;

 private:
  std::string path_;
};

}  // namespace cacheshim::example
