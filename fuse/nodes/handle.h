// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/limits/user_limits.h"
#include "fuse/nodes/arena.h"
#include "fuse/nodes/node_table.h"
#include "fuse/nodes/open_files.h"
#include "fuse/nodes/open_flags.h"
#include "store/locks/shared_file.h"
#include "store/threads/mutex.h"

namespace cacheshim {

class ControlSession;
class Job;

// An open file of a view. When the node's data move (copy-up, publishing), dup3(2) replaces the
// file behind the descriptor and keeps its number, so that readers need no lock.
struct FileHandle {
  UniqueFd fd;
  NodeIndex node = 0;
  ViewSlot slot = 0;
  Job* job = nullptr;
  bool keeps_pages = true;  // pages that the kernel cached before the open are still valid
  bool in_upper = false;
  bool writable = false;
  int access = 0;                       // O_RDONLY, O_WRONLY or O_RDWR
  std::atomic<std::uint32_t> epoch{0};  // the node's epoch when fd was opened
  // If not 0, the kernel reads and writes the backing file by itself, without requests to the daemon. With `direct_io`,
  // it does so only for mappings.
  std::uint32_t backing_id = 0;
  // Whether every read(2) and write(2) is a request to the daemon. For these calls, the kernel then uses neither its
  // cache nor the backing file.
  bool direct_io = false;
  // Whether the handle counts as a writer of the file that `device` and `inode` identify. True for a writable handle,
  // unless its file is a common file. Also true for a handle whose file the kernel reads by itself: if this file were
  // published into the base, a later copy-up would move the data to another file, which the kernel does not read.
  bool counts_as_writer = false;
  dev_t device = 0;
  ino_t inode = 0;
  bool is_lock_file = false;                 // a common file: a lock or `shared` file of the base
  off_t most_bytes = 0;                      // the maximum size of a common file
  bool is_shared_file = false;               // a file of the base, of class `shared`
  std::unique_ptr<SharedFile> shared;        // null unless a shared file is open for writing
  std::atomic<bool> uses_named_lock{false};  // its locks may be locks of a base file (NamedLocks)
  bool reports_close = false;                // the kernel sends FLUSH for each closed descriptor
  std::atomic<bool> has_noatime{false};  // whether fd has O_NOATIME
  OpenFiles::Place place{};              // the place of `fd`

  // Whether a process can write to the file through a mapping, without a request to the daemon.
  bool may_be_mapped_for_writing() const { return backing_id != 0 && access == O_RDWR; }

  // Sets or clears O_NOATIME on `fd` as in `flags`, the open flags of the caller's file. Call before each read, because
  // the caller may change O_NOATIME by fcntl(F_SETFL) at any time.
  void follow_noatime(int flags) {
    const bool is_wanted = (flags & O_NOATIME) != 0;
    if (has_noatime == is_wanted) return;
    set_noatime(fd.get(), is_wanted);
    has_noatime = is_wanted;
  }
};

// An open directory and its listing. The listing is taken at the first read and after each rewind, so that it stays
// consistent while the directory changes. An entry's position is a hash of its name, so it is the same in every
// listing. Therefore telldir(3) works, and a process continues at the right entry even if the kernel has cached the
// listing, or if the listing has changed in the meantime.
struct DirHandle {
  NodeIndex node = 0;
  UniqueFd object;  // an O_PATH descriptor of the directory, in the layer or the base
  OpenFiles::Place place{};  // the place of `object`
  struct Entry {
    std::uint64_t place;
    ListedEntry listed;
  };
  Mutex mutex{LockRank::kListing};
  bool loaded GUARDED_BY(mutex) = false;
  std::vector<Entry> entries GUARDED_BY(mutex);  // sorted by position
};

// An open file of the control directory: its text at the time of the open.
struct TextHandle {
  std::string text;
};

struct ControlHandle {
  std::shared_ptr<ControlSession> session;
};

using Handle = std::variant<std::monostate, std::unique_ptr<FileHandle>, std::unique_ptr<DirHandle>,
                            TextHandle, ControlHandle>;

// Handles by their number, which the kernel sends as `fh`.
class HandleTable {
 public:
  // The table holds `charge` as long as it has the handle.
  std::uint64_t add(Handle handle, Charge charge) {
    const std::uint32_t index = arena_.allocate();
    arena_.get(index) = {std::move(handle), std::move(charge)};
    return index;
  }
  // Returns null, or an empty handle, for an unknown number.
  Handle* find(std::uint64_t fh) {
    Slot* const slot = arena_.find(static_cast<std::uint32_t>(fh));
    return slot == nullptr ? nullptr : &slot->handle;
  }
  FileHandle* file(std::uint64_t fh) { return pointer<std::unique_ptr<FileHandle>>(fh); }
  DirHandle* dir(std::uint64_t fh) { return pointer<std::unique_ptr<DirHandle>>(fh); }
  void remove(std::uint64_t fh) {
    const Handle* const handle = find(fh);
    if (handle == nullptr || std::holds_alternative<std::monostate>(*handle)) return;
    arena_.release(static_cast<std::uint32_t>(fh));
  }

 private:
  struct Slot {
    Handle handle;
    Charge charge;
  };

  // Returns null for a handle of another kind.
  template <class Pointer>
  typename Pointer::element_type* pointer(std::uint64_t fh) {
    Pointer* held = std::get_if<Pointer>(find(fh));
    return held == nullptr ? nullptr : held->get();
  }

  Arena<Slot> arena_;
};

}  // namespace cacheshim
