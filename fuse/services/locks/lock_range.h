// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>

#include "fuse/services/locks/interval_set.h"
#include "fuse/services/locks/lock_request.h"

namespace cacheshim {

// The part of a file that a lock covers: the whole file for flock(2), bytes for fcntl(2).
struct LockRange {
  bool is_record = false;
  short type = F_UNLCK;  // F_RDLCK, F_WRLCK, or F_UNLCK for an unlock request
  Interval bytes;
};

LockRange range_of(const LockRequest& request);
struct flock to_flock(const LockRequest& request);

// Returns true if two owners cannot hold these two locks at the same time. A record lock never conflicts with a lock on
// the whole file.
bool conflict(const LockRange& one, const LockRange& other);

// Locks on one file, all made with flock(2) or all with fcntl(2). They are sorted: a user may hold thousands of record
// locks on a file, and the daemon checks each request for the file against all of them.
class LockRanges {
 public:
  // Applies a request for `range` by the owner of these locks: replaces the locks in the range, or removes them if the
  // type is F_UNLCK.
  void set(const LockRange& range);
  // Adds a lock of any owner. Changes no other lock.
  void add(const LockRange& range) { of_type(range.type).add(range.bytes); }
  void clear();

  // Returns an upper bound on the number of ranges that set() would add.
  std::size_t most_added(const LockRange& range) const;
  bool conflicts_with(const LockRange& request) const;
  bool has_exclusive() const { return !exclusive_.empty(); }
  // Whether an exclusive lock lies completely within `bytes`.
  bool has_exclusive_within(Interval bytes) const { return exclusive_.has_within(bytes); }
  bool empty() const { return shared_.empty() && exclusive_.empty(); }
  std::size_t size() const { return shared_.size() + exclusive_.size(); }
  // Calls `function(type, interval)` for each range.
  template <class Function>
  void for_each(Function&& function) const {
    shared_.for_each([&](Interval bytes) { function(short{F_RDLCK}, bytes); });
    exclusive_.for_each([&](Interval bytes) { function(short{F_WRLCK}, bytes); });
  }

 private:
  IntervalSet& of_type(short type) { return type == F_WRLCK ? exclusive_ : shared_; }

  IntervalSet shared_;
  IntervalSet exclusive_;
};

}  // namespace cacheshim
