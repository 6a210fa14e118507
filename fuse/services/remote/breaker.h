// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace cacheshim {

// Decides whether the daemon sends requests to an engine. After a failure the breaker is open: the daemon sends only
// probes, at growing intervals, until one succeeds. Initially open, with a probe due. Not thread-safe.
class Breaker {
 public:
  using Clock = std::chrono::steady_clock;
  // Doubles with each failure, up to kLongestInterval.
  static constexpr std::chrono::seconds kFirstInterval{1};
  static constexpr std::chrono::seconds kLongestInterval{60};
  // The interval is kFirstInterval again once the breaker has been closed for this time.
  static constexpr std::chrono::seconds kStable{60};

  bool is_closed() const { return is_closed_; }
  // When to send the next probe. Meaningful while the breaker is open.
  Clock::time_point probe_at() const { return probe_at_; }

  // Returns true if the breaker was closed until now. While the breaker is open, ignores failures before probe_at().
  bool note_failure(Clock::time_point now) {
    if (!is_closed_ && now < probe_at_) return false;
    if (is_closed_ && now - closed_at_ >= kStable) interval_ = kFirstInterval;
    probe_at_ = now + interval_;
    interval_ = std::min(2 * interval_, kLongestInterval);
    return std::exchange(is_closed_, false);
  }
  // Returns true if the breaker was open until now.
  bool note_success(Clock::time_point now) {
    if (is_closed_) return false;
    closed_at_ = now;
    return is_closed_ = true;
  }

 private:
  bool is_closed_ = false;
  Clock::time_point probe_at_ = Clock::time_point::min();
  Clock::time_point closed_at_;
  std::chrono::seconds interval_ = kFirstInterval;
};

}  // namespace cacheshim
