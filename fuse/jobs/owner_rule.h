// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>

namespace cacheshim {

// Whom the objects of a mount are shown to belong to, and whom new ones belong to.
struct OwnerRule {
  // owner=keep: each object has its own owner, mode and ACL, checked by the kernel as on any file
  // system; what a caller makes is the caller's. Otherwise (owner=squash) all of a view is its user's.
  bool keep = false;
  // With keep: shown to everybody in place of the real ones, and not to be changed. New objects get
  // them. A set-id bit is not set where the real owner is another: it would be a way to run as that one.
  std::optional<uid_t> shown_uid;
  std::optional<gid_t> shown_gid;
  // With keep: POSIX ACLs of the backing files count.
  bool acls = true;
};

}  // namespace cacheshim
