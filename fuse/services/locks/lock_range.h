// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <vector>

#include "fuse/services/locks/lock_request.h"

namespace cacheshim {

// The part of a file that a lock covers: the whole file for flock(2), bytes for fcntl(2).
struct LockRange {
  bool is_record = false;
  short type = F_UNLCK;  // F_RDLCK or F_WRLCK; F_UNLCK in an unlock
  off_t start = 0;       // record, bytes
  off_t length = 0;      // record, bytes; 0: to the end of the file, wherever that is
};

LockRange range_of(const LockRequest& request);
struct flock to_flock(const LockRequest& request);

// Returns true if two owners cannot have both locks at the same time. A record lock never conflicts with a lock of the
// whole file.
bool conflict(const LockRange& one, const LockRange& other);
// Whether all bytes of `inner` are in `outer`.
bool covers(const LockRange& outer, const LockRange& inner);
// Removes the bytes of `gone` from `ranges`; keeps the bytes before and after them.
void subtract(std::vector<LockRange>& ranges, const LockRange& gone);

}  // namespace cacheshim
