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

// The arguments and results of the mount's operations, without libfuse. Times are in seconds.
namespace cacheshim {

class ControlSession;

// The caller of a request, and further data that the kernel sends with the request.
struct Request {
  Caller caller;
  mode_t umask = 0;
  // For FUSE_WRITE, and for a FUSE_SETATTR that sets the size: whether the daemon must clear set-id bits and
  // capabilities.
  bool kills_set_ids = false;
  // For FUSE_SETLK and FUSE_SETLKW: the id of the calling process (not of the thread) in the daemon's pid namespace. 0
  // for an unlock, and for a process outside that namespace.
  pid_t lock_process = 0;
};

// fuse_entry_out. `ino` 0 means that the name is absent; the kernel may cache the absence for `entry_timeout`.
struct Entry {
  NodeId ino = 0;
  struct stat attr {};
  double attr_timeout = 0;
  double entry_timeout = 0;
};

// fuse_attr_out.
struct Attributes {
  struct stat st {};  // as the view shows it
  double timeout = 0;
  ino_t backing_inode = 0;  // the object's inode number on the backing file system, whose device is st.st_dev
};

// fuse_open_out.
struct OpenedFile {
  std::uint64_t fh = 0;
  bool direct_io = false;
  bool keep_cache = false;
  bool cache_readdir = false;
  bool noflush = false;
  std::uint32_t backing_id = 0;  // not 0: passthrough to this backing file
};

struct CreatedFile {
  Entry entry;
  OpenedFile file;
};

// The handle that a request uses, and the handle's flags.
struct OpenFlags {
  std::uint64_t fh = 0;
  int flags = 0;  // the flags of open(2), as later calls of fcntl(F_SETFL) have changed them
};

// The target of a lock request: an open file, and the kernel's lock owner.
struct LockTarget {
  std::uint64_t fh = 0;
  std::uint64_t owner = 0;
};

// The source of a read's data: `control` or `fd` if it is set, otherwise `text`, which may be empty.
struct ReadSource {
  std::shared_ptr<ControlSession> control;  // completes the request itself
  std::string_view text;
  int fd = -1;  // stays open until the handle is released
};

// Takes a directory's entry and the offset of the next one. Returns false, and takes nothing, if its buffer is full.
using EntrySink = std::function<bool(const ListedEntry& entry, off_t next)>;

using StatusCompletion = Completion<Status>;
using EntryCompletion = Completion<Result<Entry>>;
using AttributesCompletion = Completion<Result<Attributes>>;
using OpenCompletion = Completion<Result<OpenedFile>>;

// Makes a completion copyable, so that a std::function can capture it.
template <class R>
std::shared_ptr<Completion<R>> share(Completion<R> completion) {
  return std::make_shared<Completion<R>>(std::move(completion));
}

}  // namespace cacheshim
