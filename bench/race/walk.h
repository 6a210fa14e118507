// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cacheshim::race {

// Walks everything below `directory` as `find -ls` does: lists every directory and requests the
// attributes of every entry. Returns the number of entries. Throws std::system_error.
uint64_t walk(const std::string& directory);

}  // namespace cacheshim::race
