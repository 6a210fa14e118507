// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/unique_fd.h"

namespace cacheshim {

// The events that wake the thread that ends waits, which blocks in wait(): the exit of a builder,
// or a call of wake(). Thread-safe, without a lock.
class FlightEvents {
 public:
  static constexpr std::uint64_t kNoSerial = 0;  // no builder has it

  FlightEvents();

  // From now on, and until the pidfd is closed, wait() reports `serial` if the process of the pidfd
  // has exited. If this fails, the daemon does not see the builder's end, and waiters wait until
  // their timeout.
  void watch(int pidfd, std::uint64_t serial);
  void wake() const;
  // An eventfd, for callers that outlive this object.
  int wake_event() const { return wake_event_.get(); }
  // Blocks up to `timeout`; -1: without a limit. Returns the serials of builders that have exited.
  std::vector<std::uint64_t> wait(std::chrono::milliseconds timeout);

 private:
  const UniqueFd events_;  // epoll
  const UniqueFd wake_event_;
};

}  // namespace cacheshim
