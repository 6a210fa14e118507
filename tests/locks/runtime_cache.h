// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "locks/file_lock.h"

// An example of FileLock's use: a cache in one file that many processes share, as a runtime keeps its
// compiled kernels. It is loaded under a shared lock, and saved, merged with what others have saved
// meanwhile, under an exclusive one. See docs/locks.md.
namespace cacheshim::example {

class RuntimeCache {
 public:
  explicit RuntimeCache(std::string path) : path_(std::move(path)) {}

  // What the file holds, one entry a line; nothing where there is none yet.
  // Errors: that of the lock, timed out after `timeout`.
  FileLock::Result load(std::string& entries,
                        std::chrono::milliseconds timeout = FileLock::kDefaultTimeout) const;
  // Adds `entries` to those in the file. On error the file is as it was.
  FileLock::Result save(const std::string& entries,
                        std::chrono::milliseconds timeout = FileLock::kDefaultTimeout) const;
  // The same for a destructor: a save that cannot be is told of on stderr and changes nothing else.
  void save_at_exit(const std::string& entries) const noexcept;

 private:
  std::string path_;
};

}  // namespace cacheshim::example
