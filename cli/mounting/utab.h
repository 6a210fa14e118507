// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Maintains this mount's entry in /run/mount/utab, libmount's table for facts about mounts that the kernel does not
// record. If a mount has an entry, umount(8) takes the mount's type from mountinfo and finds umount.fuse.cacheshim.
// Otherwise umount(8) calls statfs(2), which identifies the type only as "fuse" (util-linux 2.38). No function here
// reports an error: without an entry, umount(8) unmounts without the helper.
namespace cacheshim::cli {

// Calls mount(8) to add an entry for the mount. The new entry replaces an older one. Like the other
// functions, does nothing if this process is not root, or is root only in a user namespace.
void note_mount(const std::string& source, const std::string& mount_point);

// As note_mount(), for a daemon that has mounted but is not serving yet. Does not wait for mount(8), which may send the
// daemon a request.
void note_mount_later(const std::string& source, const std::string& mount_point);

// Removes the entry of a mount that is gone. After umount(8) this is not needed.
void forget_mount(const std::string& mount_point);

}  // namespace cacheshim::cli
