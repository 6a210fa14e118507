// SPDX-License-Identifier: Apache-2.0
#include "fuse/nodes/io_modes.h"

#include <utility>

#include "fuse/transport/wire.h"

namespace cacheshim {

// Chooses the mode of an inode without open handles, before its first handle is opened.
void IoModes::begin(Inode& inode, const Opening& opening) {
  inode.may_be_mapped = inode.may_be_mapped && inode.is_of(opening.st);
  if ((!opening.wanted && !inode.may_be_mapped) || refused_) return;
  inode.backing_id = wire::register_backing(device_, opening.fd);
  inode.backing_device = opening.st.st_dev;
  inode.backing_inode = opening.st.st_ino;
  if (inode.backing_id == 0) refused_ = true;
}

Result<std::uint32_t> IoModes::open(NodeId inode, const Opening& opening) {
  if (device_ < 0) return 0U;
  Shard& shard = shard_of(inode);
  const MutexLock lock(shard.mutex);
  Inode& counted = shard.inodes[inode];
  if (counted.handles == 0) begin(counted, opening);
  if (counted.backing_id != 0) {
    if (!counted.is_of(opening.st)) return Errno(ESTALE);
    counted.may_be_mapped = counted.may_be_mapped || opening.readable;
    counted.may_be_written = counted.may_be_written || (opening.readable && opening.writable);
  }
  ++counted.handles;
  return counted.backing_id;
}

bool IoModes::may_be_written(NodeId inode) {
  return check_may_be_written(inode, [] { return true; });
}

bool IoModes::check_may_be_written(NodeId inode, const std::function<bool()>& can_be_written) {
  if (device_ < 0) return false;
  Shard& shard = shard_of(inode);
  const MutexLock lock(shard.mutex);
  const auto found = shard.inodes.find(inode);
  if (found == shard.inodes.end() || !found->second.may_be_written) return false;
  if (found->second.handles == 0) found->second.may_be_written = can_be_written();
  return found->second.may_be_written;
}

// Unregisters the backing file when the last handle is closed: otherwise, the kernel would keep the file open for
// writing.
void IoModes::close(NodeId inode) {
  if (device_ < 0) return;
  Shard& shard = shard_of(inode);
  const MutexLock lock(shard.mutex);
  const auto found = shard.inodes.find(inode);
  if (found == shard.inodes.end() || --found->second.handles != 0) return;
  const std::uint32_t backing_id = std::exchange(found->second.backing_id, 0);
  if (backing_id != 0) wire::release_backing(device_, backing_id);
  if (!found->second.may_be_mapped) shard.inodes.erase(found);
}

void IoModes::forget(NodeId inode) {
  if (device_ < 0) return;
  Shard& shard = shard_of(inode);
  const MutexLock lock(shard.mutex);
  const auto found = shard.inodes.find(inode);
  if (found != shard.inodes.end() && found->second.handles == 0) shard.inodes.erase(found);
}

}  // namespace cacheshim
