// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/acl.h"

#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>

namespace cacheshim::parity {

std::string acl_xattr(const AclRights& rights) {
  std::string bytes;
  const auto put = [&](auto value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto entry = [&](std::uint16_t tag, std::uint16_t permissions, std::uint32_t id) {
    put(htole16(tag));
    put(htole16(permissions));
    put(htole32(id));
  };
  constexpr auto kNobody = static_cast<std::uint32_t>(ACL_UNDEFINED_ID);
  put(htole32(POSIX_ACL_XATTR_VERSION));
  entry(ACL_USER_OBJ, rights.owner, kNobody);
  entry(ACL_USER, rights.named_user, kAclUser);
  entry(ACL_GROUP_OBJ, rights.group, kNobody);
  entry(ACL_GROUP, rights.named_group, kAclGroup);
  entry(ACL_MASK, rights.mask, kNobody);
  entry(ACL_OTHER, rights.other, kNobody);
  return bytes;
}

}  // namespace cacheshim::parity
