// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>

#include "common/unique_fd.h"
#include "store/sys.h"

// What an Overlay gives and takes.
namespace cacheshim {

struct Found {
  struct stat st;
  bool in_upper;  // the layer has the object, and not a lower
};

struct Opened {
  UniqueFd fd;
  bool in_upper;
};

using ListedEntry = sys::DirEntry;

// Told of files whose data moved. Called with Overlay::mutex() held exclusively; must not call back.
class OverlayObserver {
 public:
  // The regular file at `path` is now the layer's own copy, `upper`.
  virtual void copied_up(const std::string& path, const struct stat& upper) = 0;

 protected:
  ~OverlayObserver() = default;
};

}  // namespace cacheshim
