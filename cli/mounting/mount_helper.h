// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// mount(8) and umount(8) run this program for the file system type fuse.cacheshim, under the names
// mount.fuse.cacheshim and umount.fuse.cacheshim.
namespace cacheshim::cli {

// Whether the last component of `program`, argv[0], is the name of the helper.
bool is_mount_helper(std::string_view program);
bool is_umount_helper(std::string_view program);

// Converts the arguments of mount(8), "SOURCE MOUNTPOINT [-snv] [-o OPTIONS] [-t TYPE] [-N NS]", to
// words of this program. The command is `remount` if the options request it. It is `overlay` if
// they contain a lowerdir; SOURCE is then only a name. Otherwise it is `mount` with SOURCE as the
// store; layers=DIR and config=FILE among the options become options of `mount`. Keeps words that
// mount(8) never passes, so that the command rejects them.
//
// Older versions of mount(8) do not pass their defaults `suid`, `dev` and `exec`, but only the
// opposites of these. So if `is_root`, an overlay has these three unless the options contain the
// opposite. A store never has `suid` or `dev`.
std::vector<std::string> words_of_mount_helper(const std::vector<std::string>& words, bool is_root);

// As words_of_mount_helper(), for umount(8): "MOUNTPOINT [-nlfvr] [-t TYPE] [-N NS]". The command
// is `umount-as-helper`.
std::vector<std::string> words_of_umount_helper(const std::vector<std::string>& words);

}  // namespace cacheshim::cli
