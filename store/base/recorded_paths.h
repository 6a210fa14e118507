// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace cacheshim {

// Returns whether the JSON file `fd` has a string that is a path outside of `directory`. Such a
// path is an absolute path, or a relative path to the file that the string's key names ({"k.cubin":
// "cache/KEY/k.cubin"}), which depends on the reader's working directory. The file is useful only
// at a mount path where these paths lead to the same files. Returns false for text that is not
// JSON. Errors: EFBIG if the file is larger than 8 MiB or nested deeper than 64, otherwise those of
// read(2).
Result<bool> names_path_outside(int fd, const std::string& directory);

}  // namespace cacheshim
