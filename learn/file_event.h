// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace cacheshim::learn {

// One call of a program on a file below its cache, as the kernel passed it to the daemon, in the
// order of the replies.
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
  std::string to = {};        // of kRename and kLink
  int error = 0;              // an errno: the call had no effect
  bool writes = false;        // of kOpen and kCreate
  bool is_exclusive = false;  // of kCreate: O_EXCL
};

}  // namespace cacheshim::learn
