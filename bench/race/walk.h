// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cacheshim::race {

// Goes through all that lies below `directory` as `find -ls` does: lists every directory, asks for
// the attributes of every entry. Returns the number of entries. Throws std::system_error.
uint64_t walk(const std::string& directory);

}  // namespace cacheshim::race
