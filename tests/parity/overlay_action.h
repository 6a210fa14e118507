// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <random>
#include <string>

#include "store/overlay/overlay.h"

// One random change of a tree, carried out on a plain directory and on an Overlay.
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

// 0 or an errno. The overlay's checks are those that are left to a file system by the kernel.
int on_directory(int dir, const Action& action);
int on_overlay(Overlay& overlay, const Action& action);

// Whether the kernel would pass the action on, seeing the tree in `dir`: not a directory into
// itself, or a name in what is no directory.
bool reaches_the_overlay(int dir, const Action& action);

}  // namespace cacheshim::parity
