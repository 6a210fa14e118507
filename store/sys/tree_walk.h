// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/result.h"
#include "store/sys/sys.h"

// Walks a directory tree of any depth, in time linear in the number of its objects.
//
// A job decides how deep and how wide its trees are. Opening a directory by its path takes time
// linear in its depth, so a walk by paths takes quadratic time: a tree of 9,000 nested directories
// kept a thread busy for a minute. This walk opens each directory by its name in its parent. It
// uses no recursion, and at most kMostOpen + 1 descriptors: it closes the descriptors of the
// uppermost directories, and opens these directories again by "..".
namespace cacheshim {

struct WalkedDirectory {
  int fd;                                     // open for reading; its offset is at the end
  const std::string& path;                    // relative to the root of the walk
  const std::vector<sys::DirEntry>& entries;  // without "." and ".."
  std::vector<std::string>& further;          // the visitor adds the names of entries to walk next
};

// The visitor must not keep `fd` or the references after it returns. An error ends the walk.
using VisitDirectory = std::function<Status(const WalkedDirectory& directory)>;

inline constexpr std::size_t kMostOpen = 32;

// Visits the directory `top`, a path below the open directory `root`, and the directories below `top` that the visitor
// adds to `further`. A directory is visited before its subdirectories. Symlinks are not followed. Skips a directory
// that another process removes or replaces during the walk. Errors: those of opening `top`; the visitor's error;
// otherwise the first error of a directory that could not be read, after the walk has visited all others.
Status walk_tree(int root, const std::string& top, const VisitDirectory& visit);

// Whether `entry`, a name in the open directory `directory`, is a directory. Stats the object if the
// file system has not reported its type.
bool is_directory(int directory, const sys::DirEntry& entry);

}  // namespace cacheshim
