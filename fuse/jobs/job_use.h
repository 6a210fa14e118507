// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace cacheshim {

// The current use of a job, from which the daemon decides when the job ends. Thread-safe.
class JobUse {
 public:
  using Clock = std::chrono::steady_clock;

  std::atomic<int> open_files{0};
  std::atomic<int> runs{0};  // running `cacheshim run` commands
  std::atomic<bool> a_run_failed{false};

  void touch() { last_use_ = Clock::now(); }
  Clock::time_point last_use() const { return last_use_; }
  // Whether the daemon may now make the kernel repeat a lookup of the job's view
  // (OwnTree::needs_new_lookup()). Returns true at most five times a second on average, in bursts of
  // at most 25.
  bool may_redirect() {
    const Clock::time_point now = Clock::now();
    Clock::time_point paid_until = redirects_paid_until_;
    const Clock::time_point next = std::max(paid_until, now) + kRedirectPause;
    if (next - now > kMostRedirects * kRedirectPause) return false;
    return redirects_paid_until_.compare_exchange_strong(paid_until, next);
  }

 private:
  static constexpr std::chrono::milliseconds kRedirectPause{200};
  static constexpr int kMostRedirects = 25;

  std::atomic<Clock::time_point> redirects_paid_until_{};
  std::atomic<Clock::time_point> last_use_{};
};

}  // namespace cacheshim
