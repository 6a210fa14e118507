// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/notification.h"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

namespace cacheshim {
namespace {

// FUSE_EXPIRE_ONLY, in linux/fuse.h since 6.2. Older kernels treat the notification as an invalidation, which is also
// correct. Either way, the kernel takes the directory's lock.
constexpr std::uint32_t kExpireOnly = 1;
constexpr std::int32_t kIncreaseEpoch = 8;  // FUSE_NOTIFY_INC_EPOCH, linux/fuse.h since 6.16
constexpr std::int32_t kPruneNodes = 9;     // FUSE_NOTIFY_PRUNE, linux/fuse.h since 6.18

// struct fuse_notify_prune_out, followed by `count` node ids.
struct PruneOut {
  std::uint32_t count;
  std::uint32_t padding;
  std::uint64_t spare;
};

// Values of fuse_notify_inval_inode_out::off.
constexpr std::int64_t kFromTheFirstPage = 0;
constexpr std::int64_t kAttributesAlone = -1;

fuse_out_header header_of(std::int32_t code, std::size_t body_bytes) {
  fuse_out_header header{};
  header.len = static_cast<std::uint32_t>(sizeof header + body_bytes);
  header.error = code;
  return header;
}

}  // namespace

void NotificationWriter::send(const Notification& notification) const {
  switch (notification.kind) {
    case Notification::Kind::kName:
      return send_name(notification, kExpireOnly);
    case Notification::Kind::kForget:
      return send_name(notification, 0);
    case Notification::Kind::kPrune:
      return send_prune(notification.directory);
    case Notification::Kind::kNode:
      return send_node(notification.directory, kFromTheFirstPage);
    case Notification::Kind::kAttributes:
      return send_node(notification.directory, kAttributesAlone);
    case Notification::Kind::kEpoch:
      return send_epoch();
  }
}

void NotificationWriter::send_name(const Notification& notification, std::uint32_t flags) const {
  fuse_notify_inval_entry_out body{};
  body.parent = notification.directory;
  body.namelen = static_cast<std::uint32_t>(notification.name.size());
  // Since Linux 6.2, the last word is `flags`. Before, it was `padding`, at the same position.
  static_assert(sizeof body == 16);
  std::memcpy(reinterpret_cast<char*>(&body) + 12, &flags, sizeof flags);
  fuse_out_header header =
      header_of(FUSE_NOTIFY_INVAL_ENTRY, sizeof body + notification.name.size() + 1);
  iovec parts[] = {{&header, sizeof header},
                   {&body, sizeof body},
                   {const_cast<char*>(notification.name.c_str()), notification.name.size() + 1}};
  (void)!::writev(fuse_fd_, parts, 3);
}

void NotificationWriter::send_node(Notification::DirectoryId node, std::int64_t offset) const {
  fuse_notify_inval_inode_out body{};
  body.ino = node;
  body.off = offset;
  body.len = 0;  // up to the last page
  fuse_out_header header = header_of(FUSE_NOTIFY_INVAL_INODE, sizeof body);
  iovec parts[] = {{&header, sizeof header}, {&body, sizeof body}};
  (void)!::writev(fuse_fd_, parts, 2);
}

void NotificationWriter::send_epoch() const {
  fuse_out_header header = header_of(kIncreaseEpoch, 0);
  (void)!::write(fuse_fd_, &header, sizeof header);
}

void NotificationWriter::send_prune(Notification::DirectoryId node) const {
  PruneOut body{.count = 1, .padding = 0, .spare = 0};
  fuse_out_header header = header_of(kPruneNodes, sizeof body + sizeof node);
  iovec parts[] = {{&header, sizeof header}, {&body, sizeof body}, {&node, sizeof node}};
  (void)!::writev(fuse_fd_, parts, 3);
}

}  // namespace cacheshim
