// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/flight_events.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cstddef>

namespace cacheshim {

FlightEvents::FlightEvents()
    : events_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  watch(wake_event_.get(), kNoSerial);
}

void FlightEvents::watch(int pidfd, std::uint64_t serial) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = serial;
  (void)::epoll_ctl(events_.get(), EPOLL_CTL_ADD, pidfd, &event);  // see the header
}

void FlightEvents::wake() const {
  (void)::eventfd_write(wake_event_.get(), 1);  // fails only if the thread is already awake
}

std::vector<std::uint64_t> FlightEvents::wait(std::chrono::milliseconds timeout) {
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(events_.get(), events.data(), events.size(), static_cast<int>(timeout.count()));
  std::vector<std::uint64_t> serials;
  for (int at = 0; at < count; ++at) {
    const std::uint64_t serial = events.at(static_cast<std::size_t>(at)).data.u64;
    if (serial == kNoSerial) {
      eventfd_t value = 0;
      (void)::eventfd_read(wake_event_.get(), &value);  // another thread may have read it
    } else {
      serials.push_back(serial);
    }
  }
  return serials;
}

}  // namespace cacheshim
