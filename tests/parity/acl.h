// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace cacheshim::parity {

inline constexpr const char* kAccessAcl = "system.posix_acl_access";
inline constexpr const char* kDefaultAcl = "system.posix_acl_default";

// The user and the group that the ACLs of the tests name.
inline constexpr uid_t kAclUser = 20004;
inline constexpr gid_t kAclGroup = 20014;

struct AclRights {
  std::uint16_t owner, named_user, group, named_group, mask, other;  // rwx bits, as in a mode
};

// Returns an ACL with these rights, as the value of an xattr. Format: linux/posix_acl_xattr.h.
std::string acl_xattr(const AclRights& rights);

}  // namespace cacheshim::parity
