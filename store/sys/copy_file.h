// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <limits>

#include "common/result.h"

namespace cacheshim {

inline constexpr off_t kWholeFile = std::numeric_limits<off_t>::max();

struct CopyOptions {
  off_t keep_bytes = kWholeFile;  // of the data, the first so many
  // The owner, ACLs and file capabilities too.
  bool keep_owner = false;
};

// Makes the empty regular file `target`, open for writing, a copy of `source`: data (by reflink where
// the file system shares extents, else copy_file_range(2), else read and write; holes stay holes
// where it can tell), user.* xattrs, mode and times. Offsets of both are left anywhere. Thread-safe.
// Errors: those of the calls made, ENOSPC among them; `target` is then incomplete.
Status copy_file(int source, int target, const CopyOptions& options = {});

// Copies all but the data. `st` is the source's. Either may be an O_PATH descriptor, but not of a
// symlink.
Status copy_attributes(int source, int target, const struct stat& st, bool keep_owner);

// Gives a new object the owner `st` names, where it has not got it already; for any kind of object.
// False where we may not (give_away() of new_object.h): it is ours then.
Result<bool> copy_owner(int target, const struct stat& st);

// Whether two regular files hold the same bytes.
Result<bool> have_equal_content(int left, int right);

}  // namespace cacheshim
