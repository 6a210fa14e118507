// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace cacheshim {

// Whether the JSON file `fd` contains a string that is an absolute path outside `directory`, or a relative path that
// ends with the string's key ({"k.cubin": "cache/KEY/k.cubin"}). A relative path depends on the reader's working
// directory. A file with either kind of path is useful only where the path leads to the same file as it did for the
// file's writer. Returns false for text that is not JSON, or that is neither an object nor an array. Errors: EFBIG if
// the file is larger than 8 MiB or nested deeper than 64, otherwise those of read(2).
Result<bool> names_path_outside(int fd, const std::string& directory);

}  // namespace cacheshim
