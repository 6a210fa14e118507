// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "common/result.h"
#include "store/profiles/publish_allow.h"

namespace cacheshim {

// Defines which users may open a lock file of the base outside the mount: by its path in the store,
// or by its path in the run directory's bind mount of the base. A process that can open a file,
// even only for reading, can lock it and block others.
//
// If every local user may publish, all users may open a lock file (mode 0666). If `[publish] allow`
// is set, only root, the service account, and the users and groups that `allow` names may open it:
// the mode is 0600 with the sticky bit, and the named users and groups have entries in a POSIX ACL
// (the file then shows mode 0660). The kernel ignores the sticky bit on a file; here it marks a
// mode that applies only outside the mount. In a view, the view's user can open every lock file
// (View), because the daemon opens it for the user. Jobs that `allow` names have no ACL entry,
// because an ACL names only users and groups; they lock through the mount.
class LockAccess {
 public:
  explicit LockAccess(const std::optional<PublishAllow>& allow);

  mode_t mode() const { return mode_; }
  // Sets this mode and ACL on the open lock file `fd`. Does nothing if the service account does not
  // own the file. If `[publish] allow` is set and the file system has no ACLs, only root and the
  // service account can open the file.
  void apply(int fd) const;

 private:
  mode_t mode_ = 0666;
  std::string acl_;  // in the kernel's format; "" for none
};

// Whether a file of the base is a lock file that LockAccess has closed (it has the sticky bit). The
// mode of such a file does not apply in a view.
bool is_closed_lock(const struct stat& st);

}  // namespace cacheshim
