// SPDX-License-Identifier: Apache-2.0
#include "store/locks/lock_access.h"

#include <endian.h>

#include <cstdint>
#include <cstring>

#include "store/sys/new_object.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr mode_t kClosed = S_ISVTX | 0600;
constexpr std::uint32_t kNoId = 0xffffffff;

// Source: linux/posix_acl_xattr.h. Entries are sorted by tag, and entries of one tag by id.
enum Tag : std::uint16_t { kUserObj = 1, kUser = 2, kGroupObj = 4, kGroup = 8, kMask = 16, kOther = 32 };
constexpr std::uint16_t kReadWrite = 6;

void append_entry(std::string& acl, Tag tag, std::uint16_t permissions, std::uint32_t id = kNoId) {
  const std::uint16_t head[] = {htole16(tag), htole16(permissions)};
  const std::uint32_t tail = htole32(id);
  acl.append(reinterpret_cast<const char*>(head), sizeof head);
  acl.append(reinterpret_cast<const char*>(&tail), sizeof tail);
}

std::string acl_of(const PublishAllow& allow) {
  constexpr std::uint32_t kVersion = 2;
  const std::uint32_t version = htole32(kVersion);
  std::string acl(reinterpret_cast<const char*>(&version), sizeof version);
  append_entry(acl, kUserObj, kReadWrite);
  for (const unsigned user : allow.users) append_entry(acl, kUser, kReadWrite, user);
  append_entry(acl, kGroupObj, 0);
  for (const unsigned group : allow.groups) append_entry(acl, kGroup, kReadWrite, group);
  append_entry(acl, kMask, kReadWrite);
  append_entry(acl, kOther, 0);
  return acl;
}

}  // namespace

LockAccess::LockAccess(const std::optional<PublishAllow>& allow) {
  if (!allow) return;
  mode_ = kClosed;
  if (!allow->users.empty() || !allow->groups.empty()) acl_ = acl_of(*allow);
}

void LockAccess::apply(int fd) const {
  const auto st = sys::stat_fd(fd);
  if (!st || !S_ISREG(st->st_mode) || st->st_uid != sys::own_uid()) return;
  // if a file has an ACL, its mode shows the ACL's mask instead of the group's permissions
  const mode_t wanted = acl_.empty() ? mode_ : mode_ | 0060;
  const auto acl = sys::get_xattr(fd, kAccessAcl);
  if ((st->st_mode & 07777) == wanted && (acl ? *acl : std::string()) == acl_) return;
  // If one of these calls fails, more users than intended keep their access.
  if (acl_.empty() && acl) (void)sys::remove_xattr(fd, kAccessAcl);
  if ((st->st_mode & 07777) != mode_) (void)sys::set_mode(fd, mode_);
  // If this call fails, no other user gets access.
  if (!acl_.empty()) (void)sys::set_xattr(fd, kAccessAcl, acl_, 0);
}

bool is_closed_lock(const struct stat& st) {
  return S_ISREG(st.st_mode) && (st.st_mode & S_ISVTX) != 0 && st.st_uid == sys::own_uid();
}

}  // namespace cacheshim
