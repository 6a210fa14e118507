// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>

namespace cacheshim {

// The owners that a mount shows for its objects, and that it gives to new objects.
struct OwnerMode {
  // owner=keep: each object has its own owner, mode and ACL, which the kernel checks as on any file
  // system; new objects belong to the caller. Otherwise (owner=squash) everything in a view belongs
  // to the view's user.
  bool keep = false;
  // With `keep`: the owner and the group that the mount shows for all objects instead of the real ones. No user can
  // change them. New objects get this owner and group. The daemon sets no set-id bit on a file whose real owner or
  // group differs: a process could use the bit to run as that owner or group.
  std::optional<uid_t> shown_uid;
  std::optional<gid_t> shown_gid;
  // With `keep`: whether the mount uses the POSIX ACLs of the backing files.
  bool acls = true;
};

}  // namespace cacheshim
