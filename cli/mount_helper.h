// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// mount.fuse.cacheshim: the program under the name by which mount(8) calls it for
// `mount -t fuse.cacheshim` and for such lines of fstab.
namespace cacheshim::cli {

// By the last component of argv[0].
bool is_mount_helper(std::string_view program);

// What mount(8) passes, "SOURCE MOUNTPOINT [-snv] [-o OPTIONS] [-t TYPE] [-N NS]", as words of this
// program: `overlay` where the options name a lowerdir, SOURCE being just a name then, else `mount`
// with SOURCE as the store; layers=DIR and config=FILE among the options are those of `mount`.
// Words that mount(8) would not pass are left for the command to refuse.
std::vector<std::string> words_of_mount_helper(const std::vector<std::string>& words);

}  // namespace cacheshim::cli
