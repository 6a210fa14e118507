// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>

namespace cacheshim {

// The bytes from `start` up to, but not including, `end`.
struct Interval {
  static constexpr off_t kEndOfFile = std::numeric_limits<off_t>::max();
  off_t start = 0;
  off_t end = kEndOfFile;
};

// A set of bytes, stored as the fewest possible intervals, in order. Each call except for_each() and clear() takes
// logarithmic time, plus time for each interval that it removes or merges.
class IntervalSet {
 public:
  void add(Interval added) {
    auto next = first_ending_from(added.start);
    while (next != ends_.end() && next->first <= added.end) {
      added = {std::min(added.start, next->first), std::max(added.end, next->second)};
      next = ends_.erase(next);
    }
    ends_.emplace_hint(next, added.start, added.end);
  }

  // Removes these bytes. Keeps the parts of intervals that lie before or after them.
  void remove(Interval removed) {
    auto next = first_ending_after(removed.start);
    while (next != ends_.end() && next->first < removed.end) {
      const Interval old{next->first, next->second};
      next = ends_.erase(next);
      if (old.start < removed.start) ends_.emplace(old.start, removed.start);
      if (old.end > removed.end) next = ends_.emplace(removed.end, old.end).first;
    }
  }

  bool overlaps(Interval other) const {
    const auto next = first_ending_after(other.start);
    return next != ends_.end() && next->first < other.end;
  }
  // Whether a single interval has bytes both before and after `inner`: then remove(inner) would split it.
  bool has_around(Interval inner) const {
    const auto next = first_ending_after(inner.start);
    return next != ends_.end() && next->first < inner.start && next->second > inner.end;
  }
  // Whether an interval of the set lies completely within `outer`.
  bool has_within(Interval outer) const {
    const auto next = ends_.lower_bound(outer.start);
    return next != ends_.end() && next->second <= outer.end;
  }

  bool empty() const { return ends_.empty(); }
  std::size_t size() const { return ends_.size(); }  // the number of intervals
  void clear() { ends_.clear(); }
  // Calls `function(interval)` for each interval, in order.
  template <class Function>
  void for_each(Function&& function) const {
    for (const auto& [start, end] : ends_) function(Interval{start, end});
  }

 private:
  using Ends = std::map<off_t, off_t>;  // the end of each interval, by its start

  template <class Map, class IsBefore>
  static auto first_not(Map& ends, off_t offset, IsBefore&& is_before) {
    auto next = ends.upper_bound(offset);
    if (next == ends.begin()) return next;
    const auto previous = std::prev(next);
    return is_before(previous->second) ? next : previous;
  }
  Ends::iterator first_ending_from(off_t offset) {
    return first_not(ends_, offset, [&](off_t end) { return end < offset; });
  }
  Ends::iterator first_ending_after(off_t offset) {
    return first_not(ends_, offset, [&](off_t end) { return end <= offset; });
  }
  Ends::const_iterator first_ending_after(off_t offset) const {
    return first_not(ends_, offset, [&](off_t end) { return end <= offset; });
  }

  Ends ends_;
};

}  // namespace cacheshim
