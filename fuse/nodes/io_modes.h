// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "common/result.h"
#include "fuse/nodes/node_ref.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Decides which open files the kernel reads and writes by itself (FUSE passthrough, kernel 6.9).
//
// The kernel reads and writes each inode in one mode at a time: through its page cache and the daemon, or directly in
// one backing file. If the daemon answers an open with the other mode, the open fails with EIO. So the first handle
// determines the mode of all handles that are open at the same time. The daemon learns of a close only after the kernel
// has processed it, so this class never counts fewer handles than the kernel.
//
// A mapping of a passthrough file maps the backing file, and may outlive the handle. If the inode changed to the other
// mode, writes to the mapping would not appear in the pages that the kernel then caches. So an inode that may be mapped
// stays in its mode until the kernel forgets it, or its data move to another backing file.
//
// A write to a mapping of a passthrough file changes st_mtime without a request. As long as may_be_written() is true,
// the kernel must not cache attributes of the inode.
//
// Thread-safe. The inodes are divided among kShards mutexes, each of which is held across at most one ioctl(2) or one
// call of `can_be_written`.
class IoModes {
 public:
  // Allows passthrough. Before this call, reads and writes of all handles go to the daemon, and
  // open() counts no handle. `device`: the descriptor of /dev/fuse.
  void enable(int device) { device_ = device; }
  bool is_enabled() const { return device_ >= 0 && !refused_; }

  struct Opening {
    int fd;                 // an open descriptor of the backing file
    const struct stat& st;  // its attributes
    bool wanted;            // whether to request passthrough if this is the first handle
    bool readable;          // the handle can read, and so may be mapped
    bool writable;
  };
  // Counts a handle of `inode`. Returns the id of the backing file that the kernel reads and writes, or 0 if the
  // handle's reads and writes go to the daemon. Errors: ESTALE if the other handles use another backing file; the
  // handle is then not counted.
  Result<std::uint32_t> open(NodeId inode, const Opening& opening);
  // Whether the kernel may write to the file through a mapping, without a request to the daemon.
  bool may_be_written(NodeId inode);
  // As may_be_written(). If the inode has no handle, calls `can_be_written` to check whether a mapping exists.
  // `can_be_written` must not take any lock of the daemon except LayerIndex's. Requires: no thread opens the file for
  // writing during the call.
  bool check_may_be_written(NodeId inode, const std::function<bool()>& can_be_written);
  // Call when a handle that open() has counted is closed, or when its open has failed.
  void close(NodeId inode);
  void forget(NodeId inode);

 private:
  struct Inode {
    std::uint32_t handles = 0;
    std::uint32_t backing_id = 0;
    dev_t backing_device = 0;
    ino_t backing_inode = 0;
    bool may_be_mapped = false;
    bool may_be_written = false;  // the file may be written through a mapping

    bool is_of(const struct stat& st) const {
      return backing_device == st.st_dev && backing_inode == st.st_ino;
    }
  };
  struct alignas(64) Shard {
    Mutex mutex{LockRank::kIoModes};
    std::unordered_map<NodeId, Inode> inodes GUARDED_BY(mutex);
  };
  static constexpr std::size_t kShards = 32;

  Shard& shard_of(NodeId inode) { return shards_[inode % kShards]; }
  void begin(Inode& inode, const Opening& opening);

  std::atomic<int> device_{-1};
  std::atomic<bool> refused_{false};  // a registration has failed
  std::array<Shard, kShards> shards_;
};

}  // namespace cacheshim
