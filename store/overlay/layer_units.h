// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/overlay/overlay.h"

namespace cacheshim {

// What a layer holds, by what belongs together.
struct LayerUnit {
  std::string
      unit;  // as EntryRef::unit() spells it, or a file of no entry, or what an unknown cache has
  std::uint64_t files = 0;  // names of files, symlinks and the like
  std::uint64_t bytes = 0;  // what they hold
};

struct LayerContent {
  std::vector<LayerUnit> units;  // by name
  std::uint64_t removed = 0;     // names of the base that the job has removed
};

// Takes Overlay::mutex() shared. What cannot be read is left out.
LayerContent list_layer(const Overlay& overlay, const EntryMap& entries);

}  // namespace cacheshim
