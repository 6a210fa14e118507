// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <tuple>

namespace cacheshim {

// The owner of a view that belongs to no user other than root.
inline constexpr uid_t kNoOwner = static_cast<uid_t>(-1);

// One invalidation.
struct Notification {
  using DirectoryId = std::uint64_t;  // node id, as in the kernel's requests
  enum class Kind : std::uint8_t {
    kName,    // `name` in `directory`: the kernel must look it up again
    kForget,  // as kName; the kernel also forgets the name's node, unless it is in use
    // The kernel forgets the node `directory` (here, a node of any kind), unless the node is in use or has cached names
    // below it. Takes no directory's lock. Requires kernel support (NotificationWriter::knows_prune()).
    kPrune,
    // The attributes, and the data or listing, of the node `directory` (here, a node of any kind).
    kNode,
    kAttributes,  // as kNode, but only the attributes
    kEpoch,       // all names; requires kernel support (NotificationWriter::knows_epoch())
  };

  // Whether the invalidation may block. The kernel delays it while a process of `owner` holds the lock of the
  // directory, or of a page of the node's data or listing.
  bool can_block() const { return is_of_name() || kind == Kind::kNode; }
  bool is_of_name() const { return kind == Kind::kName || kind == Kind::kForget; }
  bool operator<(const Notification& other) const {
    return std::tie(directory, kind, name) < std::tie(other.directory, other.kind, other.name);
  }

  DirectoryId directory = 0;
  std::string name;
  Kind kind = Kind::kName;
  uid_t owner = kNoOwner;  // the owner of the view
};

// Writes invalidations to /dev/fuse. Thread-safe.
class NotificationWriter {
 public:
  // `fuse_fd` must stay open until the last call to send() has returned, or is blocked in the kernel.
  explicit NotificationWriter(int fuse_fd) : fuse_fd_(fuse_fd) {}
  virtual ~NotificationWriter() = default;
  NotificationWriter(const NotificationWriter&) = delete;
  NotificationWriter& operator=(const NotificationWriter&) = delete;

  // Sets the minor protocol version from the kernel's INIT request.
  void set_protocol(unsigned minor) {
    knows_epoch_ = minor >= kEpochProtocol;
    knows_prune_ = minor >= kPruneProtocol;
  }
  bool knows_epoch() const { return knows_epoch_; }
  bool knows_prune() const { return knows_prune_; }

  // Returns once the kernel has processed the invalidation. Ignores errors: ENOENT means that the kernel has cached
  // nothing, and the daemon can do nothing about other errors.
  virtual void send(const Notification& notification) const;

 private:
  static constexpr unsigned kEpochProtocol = 44;  // Linux 6.16
  static constexpr unsigned kPruneProtocol = 45;  // Linux 6.18

  void send_name(const Notification& notification, std::uint32_t flags) const;
  void send_node(Notification::DirectoryId node, std::int64_t offset) const;
  void send_epoch() const;
  void send_prune(Notification::DirectoryId node) const;

  const int fuse_fd_;
  std::atomic<bool> knows_epoch_{false};
  std::atomic<bool> knows_prune_{false};
};

}  // namespace cacheshim
