// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace cacheshim {

// Returns the xxh3-128 of a regular file's bytes, as 32 hex digits, the high half first. Does not
// change the descriptor's offset. Thread-safe. Errors: those of read(2).
Result<std::string> digest_of(int fd);

}  // namespace cacheshim
