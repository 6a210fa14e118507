// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "common/unique_fd.h"
#include "fuse/jobs/caller.h"
#include "fuse/nodes/node_ref.h"
#include "fuse/requests/completion.h"
#include "store/overlay/overlay_types.h"

// What the operations of the mount take and return, without libfuse. Times are in seconds.
namespace cacheshim {

class ControlSession;

// Who makes a request, and what the kernel says beside its arguments.
struct Request {
  Caller caller;
  mode_t umask = 0;
  // FUSE_WRITE, FUSE_SETATTR of a size: the caller may not leave set-id bits and capabilities.
  bool kills_set_ids = false;
  // FUSE_SETLK and its kind: the process that asks, its own id and not that of a thread, as the daemon sees it; 0 for
  // an unlock, and for a process outside of its pid namespace.
  pid_t lock_process = 0;
};

// fuse_entry_out. `ino` 0 says that the name is absent, and for how long the kernel may keep that.
struct Entry {
  NodeId ino = 0;
  struct stat attr {};
  double attr_timeout = 0;
  double entry_timeout = 0;
};

// fuse_attr_out.
struct Attributes {
  struct stat st {};  // as shown
  double timeout = 0;
  ino_t backing_inode = 0;  // on st.st_dev
};

// fuse_open_out.
struct OpenedFile {
  std::uint64_t fh = 0;
  bool direct_io = false;
  bool keep_cache = false;
  bool cache_readdir = false;
  bool noflush = false;
  std::uint32_t backing_id = 0;  // not 0: the kernel reads and writes this file by itself
};

struct CreatedFile {
  Entry entry;
  OpenedFile file;
};

// An open file as a request names it.
struct OpenFlags {
  std::uint64_t fh = 0;
  int flags = 0;  // of open(2), as fcntl(F_SETFL) has changed them since
};

// What a lock request is about: an open file, and the kernel's lock owner.
struct LockTarget {
  std::uint64_t fh = 0;
  std::uint64_t owner = 0;
};

// What a read comes from: the first that is there.
struct ReadSource {
  std::shared_ptr<ControlSession> control;  // it completes the request
  std::string_view text;
  int fd = -1;  // stays open until the handle is released
};

// Takes an entry of a directory and the offset of the next one. Returns false for one that it has no room for.
using EntrySink = std::function<bool(const ListedEntry& entry, off_t next)>;

using StatusCompletion = Completion<Status>;
using EntryCompletion = Completion<Result<Entry>>;
using AttributesCompletion = Completion<Result<Attributes>>;
using OpenCompletion = Completion<Result<OpenedFile>>;

// For whoever completes it from a std::function.
template <class R>
std::shared_ptr<Completion<R>> share(Completion<R> completion) {
  return std::make_shared<Completion<R>>(std::move(completion));
}

}  // namespace cacheshim
