// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "common/result.h"
#include "store/threads/slices.h"

namespace cacheshim {

// The maximum size of a file that has a digest: 1 TiB. With ftruncate(2), any user can create a larger file instantly
// and without using space, but its digest would take minutes.
inline constexpr off_t kMostDigestBytes = off_t{1} << 40;

// Returns the xxh3-128 of a regular file's bytes, as 32 hex digits, the high half first. Does not
// read holes. The descriptor's offset is undefined afterwards. Thread-safe for different
// open file descriptions. Errors: EOVERFLOW for a file of more than kMostDigestBytes, ECANCELED (slices.h),
// those of read(2).
Result<std::string> digest_of(int fd, const IsWanted& is_wanted = {});

}  // namespace cacheshim
