// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/result.h"
#include "shim/mount_table.h"

namespace cacheshim {

// What mountinfo says of `path`; errors: from open and read.
Result<MountState> read_mount_state(std::string_view path);

// Reads at most `capacity` bytes of a file; returns how many. Errors: EFBIG where it has more.
Result<std::size_t> read_file(const char* path, char* out, std::size_t capacity);

}  // namespace cacheshim
