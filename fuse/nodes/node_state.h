// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>

namespace cacheshim {

// The state of a node's file, apart from its names. Any thread may read and change it without the
// table's lock, as long as the node lives. All accesses are sequentially consistent; the members
// are not std::atomic so that a node can be moved.
//
// A process may open a file while another process locks it:
// - The open calls add_silent_handle(), then reads takes_locks().
// - The lock request calls set_takes_locks(), then reads silent_handles().
// So at least one of the two requests sees the other's change.
class NodeState {
 public:
  // Changes when the file's data have moved: open handles then see a new epoch and open the file again.
  std::uint32_t epoch() const { return std::atomic_ref(epoch_).load(); }
  void begin_epoch() { std::atomic_ref(epoch_).fetch_add(1); }

  // Whether a file of the base has the same size and times as at the last call; true at the first
  // call.
  bool has_same_data(const struct stat& st);

  // Whether the daemon knows that the object, which is in the layer, has no file capabilities. Set
  // when the daemon has checked or created the object; cleared when its attributes change, and by
  // NodeObjects::moved().
  bool lacks_capabilities() const { return std::atomic_ref(lacks_capabilities_) != 0; }
  void set_lacks_capabilities(bool lacks) {
    std::atomic_ref(lacks_capabilities_).store(static_cast<std::uint8_t>(lacks));
  }

  // Whether the file's locks are those of its inode (NodeObjects::locked_inode()); true from the
  // first call of lock_by_inode() on.
  bool locks_by_inode() const { return std::atomic_ref(locks_by_inode_) != 0; }
  void lock_by_inode() { std::atomic_ref(locks_by_inode_).store(1); }
  // Whether a process has locked the file since the node was made.
  bool takes_locks() const { return std::atomic_ref(takes_locks_) != 0; }
  void set_takes_locks() { std::atomic_ref(takes_locks_).store(1); }
  // The number of open handles whose closes the kernel does not report by FLUSH.
  std::uint32_t silent_handles() const { return std::atomic_ref(silent_handles_); }
  void add_silent_handle() { std::atomic_ref(silent_handles_).fetch_add(1); }
  void remove_silent_handle() { std::atomic_ref(silent_handles_).fetch_sub(1); }

 private:
  // std::atomic_ref needs a mutable object.
  mutable std::uint32_t epoch_ = 0;
  mutable std::uint32_t silent_handles_ = 0;
  std::uint32_t stamp_ = 0;  // a hash of the base file's size and times
  mutable std::uint8_t lacks_capabilities_ = 0;
  mutable std::uint8_t takes_locks_ = 0;
  mutable std::uint8_t locks_by_inode_ = 0;
};

}  // namespace cacheshim
