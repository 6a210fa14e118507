// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/notice.h"

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

void NoticeWriter::send(const Notice& notice) const {
  switch (notice.kind) {
    case Notice::Kind::kName:
      return send_name(notice, kExpireOnly);
    case Notice::Kind::kForget:
      return send_name(notice, 0);
    case Notice::Kind::kPrune:
      return send_prune(notice.directory);
    case Notice::Kind::kNode:
      return send_node(notice.directory, kFromTheFirstPage);
    case Notice::Kind::kAttributes:
      return send_node(notice.directory, kAttributesAlone);
    case Notice::Kind::kEpoch:
      return send_epoch();
  }
}

void NoticeWriter::send_name(const Notice& notice, std::uint32_t flags) const {
  fuse_notify_inval_entry_out body{};
  body.parent = notice.directory;
  body.namelen = static_cast<std::uint32_t>(notice.name.size());
  // Since Linux 6.2, the last word is `flags`. Before, it was `padding`, at the same position.
  static_assert(sizeof body == 16);
  std::memcpy(reinterpret_cast<char*>(&body) + 12, &flags, sizeof flags);
  fuse_out_header header = header_of(FUSE_NOTIFY_INVAL_ENTRY, sizeof body + notice.name.size() + 1);
  iovec parts[] = {{&header, sizeof header},
                   {&body, sizeof body},
                   {const_cast<char*>(notice.name.c_str()), notice.name.size() + 1}};
  (void)!::writev(fuse_fd_, parts, 3);
}

void NoticeWriter::send_node(Notice::DirectoryId node, std::int64_t offset) const {
  fuse_notify_inval_inode_out body{};
  body.ino = node;
  body.off = offset;
  body.len = 0;  // up to the last page
  fuse_out_header header = header_of(FUSE_NOTIFY_INVAL_INODE, sizeof body);
  iovec parts[] = {{&header, sizeof header}, {&body, sizeof body}};
  (void)!::writev(fuse_fd_, parts, 2);
}

void NoticeWriter::send_epoch() const {
  fuse_out_header header = header_of(kIncreaseEpoch, 0);
  (void)!::write(fuse_fd_, &header, sizeof header);
}

void NoticeWriter::send_prune(Notice::DirectoryId node) const {
  PruneOut body{.count = 1, .padding = 0, .spare = 0};
  fuse_out_header header = header_of(kPruneNodes, sizeof body + sizeof node);
  iovec parts[] = {{&header, sizeof header}, {&body, sizeof body}, {&node, sizeof node}};
  (void)!::writev(fuse_fd_, parts, 3);
}

}  // namespace cacheshim
