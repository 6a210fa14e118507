// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// mount.fuse.cacheshim and umount.fuse.cacheshim: the program under the names by which mount(8) and
// umount(8) call it for this type of file system.
namespace cacheshim::cli {

// Decides by the last component of argv[0].
bool is_mount_helper(std::string_view program);
bool is_umount_helper(std::string_view program);

// Returns the arguments of mount(8), "SOURCE MOUNTPOINT [-snv] [-o OPTIONS] [-t TYPE] [-N NS]", as
// words of this program. The command is `remount` if the options request it. It is `overlay` if
// they name a lowerdir; SOURCE is then only a name. Otherwise it is `mount` with SOURCE as the
// store; layers=DIR and config=FILE among the options become options of `mount`. The command
// rejects words that mount(8) would not pass.
//
// Except in newer versions, mount(8) does not pass `suid`, `dev` or `exec`, only their opposites,
// since they are its defaults. So an overlay has them unless the options say otherwise, if
// `is_root`; a store never has the first two.
std::vector<std::string> words_of_mount_helper(const std::vector<std::string>& words, bool is_root);

// The same for umount(8): "MOUNTPOINT [-nlfvr] [-t TYPE] [-N NS]". The word is `umount-as-helper`.
std::vector<std::string> words_of_umount_helper(const std::vector<std::string>& words);

}  // namespace cacheshim::cli
