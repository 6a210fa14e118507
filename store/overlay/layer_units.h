// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/overlay/overlay.h"

namespace cacheshim {

// The part of a unit that is in a layer.
struct LayerUnit {
  // An entry in the form of EntryRef::unit(), a file that belongs to no entry, or an object directly in
  // the directory of an unknown cache ("CACHE/NAME").
  std::string unit;
  std::uint64_t files = 0;  // names of files, symlinks and other objects
  std::uint64_t bytes = 0;  // the total size of the regular files
};

struct LayerContent {
  std::vector<LayerUnit> units;  // sorted by name
  std::uint64_t removed = 0;     // names of the base that the job has removed
};

// Takes Overlay::mutex() shared. Skips unreadable objects.
LayerContent list_layer(const Overlay& overlay, const EntryMap& entries);

}  // namespace cacheshim
