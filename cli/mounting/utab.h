// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// /run/mount/utab, libmount's table of facts about mounts that the kernel does not know. If the mount is in
// that table, umount(8) takes its type from mountinfo and finds umount.fuse.cacheshim. Otherwise it asks
// statfs(2), which says just "fuse" (util-linux 2.38). No function here fails: without an entry, umount(8)
// unmounts without the helper.
namespace cacheshim::cli {

// Adds an entry for the mount with mount(8). Does nothing unless this process is root.
void note_mount(const std::string& source, const std::string& mount_point);

// The same for a daemon that has mounted but does not serve yet. Does not wait for mount(8), which may send
// the daemon a request.
void note_mount_later(const std::string& source, const std::string& mount_point);

// Removes the entry of a mount that is gone. umount(8) does that by itself.
void forget_mount(const std::string& mount_point);

}  // namespace cacheshim::cli
