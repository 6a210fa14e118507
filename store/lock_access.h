// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "common/result.h"
#include "store/publish_allow.h"

namespace cacheshim {

// Who may open a lock file of the base beside the mount, by its store's path or by the base that is bound in
// the run directory: who can open a file, for reading too, can lock it, and hold up everybody else.
//
// Everybody where everybody may publish (mode 0666). Where a rule says who may, those users and groups alone,
// by a POSIX ACL, and root: mode 0660, with the sticky bit, which means nothing to the kernel on a file and
// says here that the mode is for those beside the mount. In a view such a file is open to its user (View);
// the daemon opens it itself. Jobs that a cgroup proves have no ACL: they come by the mount.
class LockAccess {
 public:
  explicit LockAccess(const std::optional<PublishAllow>& allow);

  mode_t mode() const { return mode_; }
  // Ensures that the open lock file `fd` is so. Not an error where it is not ours to change; where the file
  // system has no ACLs it is closed to all but the service account.
  void apply(int fd) const;

 private:
  mode_t mode_ = 0666;
  std::string acl_;  // as the kernel takes it; "" for none
};

// Whether a file of the base is such a lock file, whose mode says nothing of who may open it in a view.
bool is_closed_lock(const struct stat& st);

}  // namespace cacheshim
