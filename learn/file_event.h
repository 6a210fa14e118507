// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace cacheshim::learn {

// One operation of a program on a file below its cache's directory, as the kernel passed it to the
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
  std::string path;           // below the cache's directory; "" for that directory
  std::string to = {};        // the new path; only for kRename and kLink
  int error = 0;              // an errno; not 0: the call had no effect
  bool writes = false;        // only for kOpen and kCreate
  bool is_exclusive = false;  // only for kCreate: O_EXCL
};

}  // namespace cacheshim::learn
