// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>

namespace cacheshim {

// The current use of a job, by which the daemon decides when the job ends. Thread-safe.
class JobUse {
 public:
  using Clock = std::chrono::steady_clock;

  std::atomic<int> open_files{0};
  std::atomic<int> runs{0};  // running `cacheshim run` commands
  std::atomic<bool> a_run_failed{false};

  void touch() { last_use_ = Clock::now(); }
  Clock::time_point last_use() const { return last_use_; }

 private:
  std::atomic<Clock::time_point> last_use_{};
};

}  // namespace cacheshim
