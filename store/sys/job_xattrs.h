// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/result.h"

// The extended attributes that a file loses before it enters the base.
//
// In the base, a file has its bytes, its name and its times, and nothing else that a job can set.
// Later, the base may become the lower directory of an overlay, and root may copy, back up or serve
// it. Some programs obey attributes whose names begin with `user.`: overlayfs (user.overlay.*),
// fuse-overlayfs (user.fuseoverlayfs.*, user.containers.override_stat), PRoot
// (user.rootlesscontainers) and Samba (user.DOSATTRIB). A list of such names would never be
// complete, so all `user.*` attributes are removed. So are `trusted.*`, POSIX ACLs and file
// capabilities.
//
// The other `security.*` attributes (labels of SELinux and Smack, signatures of IMA) come from the
// machine's security policy. A job cannot set them through a mount, so they stay.
namespace cacheshim {

bool is_lost_in_base(std::string_view xattr);

// `fd`: any descriptor of a regular file. Errors: those of flistxattr(2) and fremovexattr(2). A
// file system without extended attributes is not an error.
Status remove_job_xattrs(int fd);
Result<bool> has_job_xattrs(int fd);

}  // namespace cacheshim
