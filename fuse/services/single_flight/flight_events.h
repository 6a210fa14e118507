// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/unique_fd.h"

namespace cacheshim {

// The events for which the thread that ends waits blocks: the exit of a builder, or wake().
// Thread-safe, without a lock.
class FlightEvents {
 public:
  static constexpr std::uint64_t kNoSerial = 0;  // of no builder

  FlightEvents();

  // From now on wait() reports the serial once the process behind the pidfd has exited; until it is
  // closed. If this fails, the daemon does not see the builder's end, and waiters wait until their
  // timeout.
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
