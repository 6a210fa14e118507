// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include "common/result.h"
#include "fuse/jobs/caller.h"
#include "fuse/jobs/owner_mode.h"

// The checks and changes of set-user-id and set-group-id bits that the kernel leaves to the daemon. The backing file
// system cannot make them, because the daemon accesses it with its own credentials for every caller.
namespace cacheshim {

// Clears the bits that a change to the file's data by this caller must clear. `fd`: any descriptor of the file;
// `shown`: its attributes in the caller's view.
Status drop_set_ids(const Caller& caller, int fd, const struct stat& shown);

// Clears the bits that a chown clears, regardless of the caller.
Status drop_set_ids_on_chown(int fd);

// Call when the caller sets an ACL, which changes the mode as chmod does. Clears the set-group-id bit if the caller is
// not in the file's group.
Status drop_foreign_set_group_id(const Caller& caller, int fd);

// Returns the set-id bits that a chmod by this caller must not set, because the file's real owner or group differs from
// the one that the view shows. The kernel has checked the caller only against the shown owner. With owner=squash, every
// file really belongs to the service account. If the file was or becomes a lock file of the base, a caller can reach it
// outside the mount, and with a set-id bit could run it as that account. Returns 0 for directories.
Result<mode_t> set_ids_to_refuse(const OwnerMode& owners, const Caller& caller, int fd);

// As set_ids_to_refuse(), for a file that the caller creates in a view with owner=squash.
mode_t set_ids_to_refuse_at_creation(const Caller& caller);

}  // namespace cacheshim
