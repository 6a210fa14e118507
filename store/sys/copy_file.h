// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <limits>

#include "common/result.h"
#include "store/threads/slices.h"

namespace cacheshim {

inline constexpr off_t kWholeFile = std::numeric_limits<off_t>::max();

struct CopyOptions {
  off_t keep_bytes = kWholeFile;  // copies at most this many bytes of data
  // Whether to copy the owner, ACLs and file capabilities as well.
  bool keep_owner = false;
  // Whether to copy only data and times, for a job's file that enters the base. If set, `target` keeps its mode and
  // gets no xattrs.
  bool is_for_base = false;
  IsWanted is_wanted = {};
};

// Copies the regular file `source` to `target`, an empty regular file that is open for writing: data, mode, times, and
// the user.* xattrs except those of overlayfs. Copies the data by reflink if the file system shares extents, otherwise
// by copy_file_range(2), otherwise by read and write. Preserves holes if the file system reports them. The offsets of
// both descriptors are undefined afterwards. Thread-safe. Errors: ECANCELED (slices.h), those of the system calls,
// including ENOSPC. After an error, `target` is incomplete.
Status copy_file(int source, int target, const CopyOptions& options = {});

// Returns the maximum number of bytes of data in a copy of the file, not counting holes. `st`
// describes the file.
std::uint64_t size_of_copy(const struct stat& st, off_t keep_bytes = kWholeFile);

// Copies everything that copy_file() copies, except the data. `st` describes the source. Either
// descriptor may be an O_PATH descriptor; neither may refer to a symlink.
Status copy_attributes(int source, int target, const struct stat& st, bool keep_owner);

// Gives a new object of any kind the owner and group in `st`. Returns false if that is not
// permitted (change_owner() of new_object.h): the object then still belongs to the service account.
Result<bool> copy_owner(int target, const struct stat& st);

// Whether two regular files have the same bytes. Does not read holes. The offsets of both descriptors
// are undefined afterwards. Errors: ECANCELED (slices.h), those of read(2).
Result<bool> have_equal_content(int left, int right, const IsWanted& is_wanted = {});

}  // namespace cacheshim
