// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace cacheshim {

// Whether the JSON file `fd` has a string that is an absolute path outside of `folder`: such a file
// is of use only where that path leads to the same files. False for what is not JSON.
// Errors: EFBIG for a file of more than 8 MiB or nested deeper than 64, else those of read(2).
Result<bool> names_path_outside(int fd, const std::string& folder);

}  // namespace cacheshim
