// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <random>
#include <string>

#include "store/overlay/overlay.h"

// One random change to a tree, performed on a plain directory and on an Overlay.
namespace cacheshim::parity {

enum class Kind { kWrite, kMkdir, kUnlink, kRmdir, kRename, kNoreplace, kExchange, kLink, kChmod };

struct Action {
  Kind kind;
  std::string first;
  std::string second;
  unsigned number;

  static Action random(std::mt19937& random);
  std::string text() const;
  unsigned rename_flags() const;
  mode_t mode() const { return 0700 | (number & 077); }
};

// Both functions perform the action and return 0 or an errno. Overlay makes only the checks that the kernel
// leaves to a file system.
int on_directory(int dir, const Action& action);
int on_overlay(Overlay& overlay, const Action& action);

// Returns true if, for the tree in `dir`, the kernel would pass the action to the file system. For
// example, the kernel itself refuses to move a directory into itself, to link or write a directory,
// and to use a path that leads through a file.
bool reaches_the_overlay(int dir, const Action& action);

}  // namespace cacheshim::parity
