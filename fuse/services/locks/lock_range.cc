// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_range.h"

#include <unistd.h>

namespace cacheshim {
namespace {

bool overlap(Interval one, Interval other) { return one.start < other.end && other.start < one.end; }

}  // namespace

LockRange range_of(const LockRequest& request) {
  if (!request.is_record) return {false, request.type, {}};
  const off_t end =
      request.length == 0 ? Interval::kEndOfFile : request.start + request.length;
  return {true, request.type, {request.start, end}};
}

struct flock to_flock(const LockRequest& request) {
  struct flock range {};
  range.l_type = request.type;
  range.l_whence = SEEK_SET;
  range.l_start = request.start;
  range.l_len = request.length;
  return range;
}

bool conflict(const LockRange& one, const LockRange& other) {
  if (one.is_record != other.is_record) return false;
  if (one.type != F_WRLCK && other.type != F_WRLCK) return false;
  return overlap(one.bytes, other.bytes);
}

void LockRanges::set(const LockRange& range) {
  shared_.remove(range.bytes);
  exclusive_.remove(range.bytes);
  if (range.type != F_UNLCK) add(range);
}

void LockRanges::clear() {
  shared_.clear();
  exclusive_.clear();
}

std::size_t LockRanges::most_added(const LockRange& range) const {
  const bool splits = shared_.has_around(range.bytes) || exclusive_.has_around(range.bytes);
  return (splits ? 1U : 0U) + (range.type != F_UNLCK ? 1U : 0U);
}

bool LockRanges::conflicts_with(const LockRange& request) const {
  if (exclusive_.overlaps(request.bytes)) return true;
  return request.type == F_WRLCK && shared_.overlaps(request.bytes);
}

}  // namespace cacheshim
