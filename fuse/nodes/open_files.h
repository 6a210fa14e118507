// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include <array>
#include <list>
#include <unordered_map>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "fuse/nodes/node_table.h"
#include "store/sys/sys.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The backing descriptors of the open files and directories of each node. For fstat(2), fchmod(2) and similar calls,
// the kernel sends only the node, not the handle. A node finds its object by name; when the name is gone, these
// descriptors lead to the object.
//
// Thread-safe. The nodes are divided among kShards mutexes, each of which is held across at most
// one open(2) or fstat(2).
class OpenFiles {
 public:
  using Descriptors = std::list<int>;
  using Place = Descriptors::iterator;

  // `fd` must stay open until remove(), but may come to refer to another file (FileHandle).
  Place add(NodeIndex node, int fd) {
    Shard& shard = shard_of(node);
    const MutexLock lock(shard.mutex);
    Descriptors& fds = shard.files[node];
    return fds.insert(fds.end(), fd);
  }
  // Call once with the result of add(). Takes constant time, however many descriptors the node has.
  void remove(NodeIndex node, Place place) {
    Shard& shard = shard_of(node);
    const MutexLock lock(shard.mutex);
    const auto found = shard.files.find(node);
    found->second.erase(place);
    if (found->second.empty()) shard.files.erase(found);
  }
  bool has(NodeIndex node) const {
    const Shard& shard = shard_of(node);
    const MutexLock lock(shard.mutex);
    return shard.files.contains(node);
  }
  // Returns the result of fstat(2) on the most recently opened descriptor. Errors: ESTALE if the
  // node is not open.
  Result<struct stat> stat(NodeIndex node) const {
    const Shard& shard = shard_of(node);
    const MutexLock lock(shard.mutex);
    const auto found = shard.files.find(node);
    if (found == shard.files.end()) return Errno(ESTALE);
    return sys::stat_fd(found->second.back());
  }
  std::vector<NodeIndex> nodes() const {
    std::vector<NodeIndex> open;
    for (const Shard& shard : shards_) {
      const MutexLock lock(shard.mutex);
      for (const auto& [node, fds] : shard.files) open.push_back(node);
    }
    return open;
  }
  // Returns an O_PATH descriptor of the object behind the most recently opened descriptor. Errors: ESTALE if the node
  // is not open.
  Result<UniqueFd> open_object(NodeIndex node) const {
    const Shard& shard = shard_of(node);
    const MutexLock lock(shard.mutex);
    const auto found = shard.files.find(node);
    if (found == shard.files.end()) return Errno(ESTALE);
    return sys::reopen(found->second.back(), O_PATH);
  }

 private:
  struct alignas(64) Shard {
    mutable Mutex mutex;
    std::unordered_map<NodeIndex, Descriptors> files GUARDED_BY(mutex);
  };
  static constexpr std::size_t kShards = 32;

  Shard& shard_of(NodeIndex node) { return shards_[node % kShards]; }
  const Shard& shard_of(NodeIndex node) const { return shards_[node % kShards]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace cacheshim
