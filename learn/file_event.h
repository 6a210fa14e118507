// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace cacheshim::learn {

// One operation of a program on a file below the cache's directory, as the kernel passed it to the
// daemon. Events are in the order of the daemon's replies.
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
  // Relative to the cache's directory; "" for that directory, and for a kLink of an unknown file.
  std::string path;
  std::string to = {};        // the new path; only for kRename and kLink
  int error = 0;              // 0, or the errno of a call that failed and had no effect
  bool writes = false;        // only for kOpen and kCreate
  bool is_exclusive = false;  // only for kCreate: O_EXCL
};

}  // namespace cacheshim::learn
