// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_range.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace cacheshim {
namespace {

off_t end_of(const LockRange& range) {
  return range.length == 0 ? std::numeric_limits<off_t>::max() : range.start + range.length;
}

}  // namespace

LockRange range_of(const LockRequest& request) {
  return {request.is_record, request.type, request.start, request.length};
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
  return !one.is_record || (one.start < end_of(other) && other.start < end_of(one));
}

bool covers(const LockRange& outer, const LockRange& inner) {
  return outer.start <= inner.start && end_of(inner) <= end_of(outer);
}

void subtract(std::vector<LockRange>& ranges, const LockRange& gone) {
  const off_t end = end_of(gone);
  std::vector<LockRange> left;
  for (const LockRange& range : ranges) {
    const off_t range_end = end_of(range);
    if (range.start < gone.start) {
      const off_t until = std::min(range_end, gone.start);
      left.push_back({range.is_record, range.type, range.start, until - range.start});
    }
    if (range_end <= end) continue;
    const off_t from = std::max(range.start, end);
    const bool has_no_end = range.length == 0;
    left.push_back({range.is_record, range.type, from, has_no_end ? 0 : range_end - from});
  }
  ranges = std::move(left);
}

}  // namespace cacheshim
