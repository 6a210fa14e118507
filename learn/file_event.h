// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace cacheshim::learn {

// One call of a program on a file below its cache, as the kernel passed it on, when it was answered.
struct FileEvent {
  enum class Op {
    kLookup,
    kMakeDir,
    kCreate,
    kOpen,
    kRename,
    kLink,
    kUnlink,
    kRmdir,
    kLock,
    kUnlock
  };
  Op op;
  pid_t thread;
  std::string path;           // below the cache's directory, "" for that itself
  std::string to = {};        // of kRename and kLink
  int error = 0;              // an errno: nothing has happened
  bool writes = false;        // of kOpen and kCreate
  bool is_exclusive = false;  // of kCreate: O_EXCL
};

}  // namespace cacheshim::learn
