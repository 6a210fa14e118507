// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// libmount's table of what the kernel does not know of mounts, /run/mount/utab. umount(8) looks the type of
// a mount up in mountinfo, and so finds umount.fuse.cacheshim, only if the mount is in that table: else it
// asks statfs(2), which says just "fuse" (util-linux 2.38). Nothing here fails: without an entry, umount(8)
// unmounts without the helper.
namespace cacheshim::cli {

// Adds an entry for the mount, by mount(8). Does nothing unless this process is root.
void note_mount(const std::string& source, const std::string& mount_point);

// The same from a daemon that has mounted, but not begun to serve: does not wait for mount(8), which might
// ask it something.
void note_mount_later(const std::string& source, const std::string& mount_point);

// Removes the entry of a mount that is gone. umount(8) does that by itself.
void forget_mount(const std::string& mount_point);

}  // namespace cacheshim::cli
