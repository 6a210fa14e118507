// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "store/base/base_watch.h"
#include "store/sys/guard.h"

// The implementations of the two modes of base_watch.h, and their common code. Internal to store/.
namespace cacheshim {

// Return null if the kernel does not support the mode, or this process lacks the privilege.
std::unique_ptr<BaseWatch> start_fanotify(const std::vector<int>& directories,
                                          const BaseWatch::Callback& changed);
std::unique_ptr<BaseWatch> start_inotify(const std::vector<int>& directories,
                                         const BaseWatch::Callback& changed);

// Adds `change`. Replaces the name of a marker by the name that the marker hides.
void add_change(std::vector<BaseChange>& changes, BaseChange change);

// A thread that reads a descriptor of events until it is stopped. It pauses after each batch, so
// that a busy file system causes at most some hundred wake-ups a second instead of one per event.
class EventThread {
 public:
  EventThread(int events, std::function<void()> read)
      : events_(events), read_(std::move(read)), stop_(::eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([this] { run(); });
  }
  ~EventThread() {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);  // fails only after 2^64 - 1 writes
    thread_.join();
  }
  EventThread(const EventThread&) = delete;
  EventThread& operator=(const EventThread&) = delete;

 private:
  static constexpr int kPauseMs = 1;

  void run() {
    for (;;) {
      pollfd wanted[] = {{stop_.get(), POLLIN, 0}, {events_, POLLIN, 0}};
      (void)::poll(wanted, 2, -1);  // EINTR: no flag is set, and the loop repeats
      if (wanted[0].revents != 0) return;
      if (wanted[1].revents == 0) continue;
      (void)run_guarded("reading events of the base", read_);
      pollfd stop = {stop_.get(), POLLIN, 0};
      if (::poll(&stop, 1, kPauseMs) > 0) return;
    }
  }

  const int events_;
  const std::function<void()> read_;
  const UniqueFd stop_;
  std::thread thread_;
};

}  // namespace cacheshim
