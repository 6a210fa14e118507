// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "store/overlay/overlay.h"

namespace cacheshim {

// The maximum amount that may be copied up while other requests wait.
struct CopyBound {
  std::size_t objects;
  std::uint64_t bytes;  // bytes of data; holes do not count
};

// Whether a copy-up of `path`, with the contents if it is a directory, exceeds the bound. Counts what the lowers have
// at `path`, even if the layer hides a part of it. Stats at most bound.objects + 1 objects, and lists their
// directories. Returns false if there is nothing to copy, or if the objects cannot be read.
bool exceeds(const CopyBound& bound, Overlay& overlay, const std::string& path)
    EXCLUDES(overlay.mutex());

}  // namespace cacheshim
