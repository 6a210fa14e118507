// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <limits>

#include "common/result.h"

namespace cacheshim {

inline constexpr off_t kWholeFile = std::numeric_limits<off_t>::max();

// Makes the empty regular file `target` a copy of the first `keep_bytes` of `source`: data (by
// reflink where the file system shares extents, else copy_file_range(2), else read and write; holes
// stay holes where it can tell), user.* xattrs, mode and times. Offsets of both are left anywhere.
// Thread-safe. Errors: those of the calls made, ENOSPC among them; `target` is then incomplete.
Status copy_file(int source, int target, off_t keep_bytes = kWholeFile);

// Copies the user.* xattrs alone. Either may be an O_PATH descriptor.
Status copy_user_xattrs(int source, int target);

// Whether two regular files hold the same bytes.
Result<bool> have_equal_content(int left, int right);

}  // namespace cacheshim
