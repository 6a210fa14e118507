// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace cacheshim {

// xxh3-128 of a regular file's bytes, as 32 hex digits, the high half first. Leaves the descriptor's
// offset alone. Thread-safe. Errors: those of read(2).
Result<std::string> digest_of(int fd);

}  // namespace cacheshim
