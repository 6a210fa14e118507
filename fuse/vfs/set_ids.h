// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include "common/result.h"
#include "fuse/jobs/caller.h"
#include "fuse/jobs/owner_rule.h"

// The set-user-id and set-group-id bits, where the kernel leaves them to us. The backing file system
// cannot see to them, since it takes us, and so every caller, for root.
namespace cacheshim {

// Clears the bits that do not outlive a change of the file's data by this caller, to whom it is shown
// as `shown`. `fd` is any descriptor.
Status drop_set_ids(const Caller& caller, int fd, const struct stat& shown);

// The same for a chown, which nobody is spared.
Status drop_set_ids_on_chown(int fd);

// An ACL sets the mode as chmod does, and who is not in the file's group may not keep its
// set-group-id bit.
Status drop_foreign_set_group_id(const Caller& caller, int fd);

// The bits that a chmod, allowed by the owner shown, must not set on a file of another real one.
Result<mode_t> set_ids_to_refuse(const OwnerRule& owners, int fd);

}  // namespace cacheshim
