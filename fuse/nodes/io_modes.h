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
#include "store/sys/mutex.h"

namespace cacheshim {

// Which open files the kernel reads and writes by itself (FUSE passthrough, kernel 6.9).
//
// An inode of the kernel's is in one mode at a time: through its page cache and us, or straight to one
// backing file; an open that is answered with the other mode fails with EIO. So the first handle
// decides for all that are open together with it. We learn of a close after the kernel has forgotten
// it, never before, so that what is counted here is at least what the kernel counts.
//
// A mapping of a file that passes through is one of the backing file, and goes on when the handle is
// closed. What was written by it would not show in pages that the kernel keeps of the other mode, so
// an inode that may be mapped stays in its mode until the kernel forgets it.
//
// Such a mapping also changes st_mtime without any request. From the first open that allows a mapping on, the
// kernel may keep no attributes of the inode.
//
// Thread-safe: a mutex for each of some sets of inodes, held across one ioctl(2) or
// can_be_written().
class IoModes {
 public:
  // Before it nothing passes through, and nothing is counted. `device`: that of the connection.
  void enable(int device) { device_ = device; }
  bool is_enabled() const { return device_ >= 0 && !refused_; }

  struct Opening {
    int fd;                 // the backing file, open
    const struct stat& st;  // of it
    bool wanted;            // to pass through, if it is the first
    bool readable;          // and so to be mapped
    bool writable;
  };
  // Counts a handle of `inode`. Returns the backing file that the kernel is to be told of, or 0 for a
  // handle that goes by way of us. Errors: ESTALE (not counted) where that of the others is another.
  Result<std::uint32_t> open(NodeId inode, const Opening& opening);
  // Whether the kernel may write to the file by a mapping, which no request tells of.
  bool may_be_written(NodeId inode);
  // The same after a check: without a handle, `can_be_written` says whether a mapping exists. It takes no lock
  // of the daemon except LayerIndex's, and no thread opens the file for writing meanwhile.
  bool check_may_be_written(NodeId inode, const std::function<bool()>& can_be_written);
  // That handle is closed, or has not come about.
  void close(NodeId inode);
  void forget(NodeId inode);

 private:
  struct Inode {
    std::uint32_t handles = 0;
    std::uint32_t backing_id = 0;
    dev_t backing_device = 0;
    ino_t backing_inode = 0;
    bool may_be_mapped = false;
    bool may_be_written = false;  // by a mapping

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
  std::atomic<bool> refused_{false};  // asked for once in vain
  std::array<Shard, kShards> shards_;
};

}  // namespace cacheshim
