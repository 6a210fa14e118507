// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

namespace cacheshim {

// Those who look a name up again, since what it led to was replaced before they opened it (ESTALE). The
// kernel does that once: an application would see the error if the file were replaced in between once
// more. So who replaces files again and again waits for them.
//
// Thread-safe.
class StaleRetries {
 public:
  // A thread is about to be told. 0, one that is not known here, is not waited for.
  void begin(pid_t client);
  // It has looked at what it found, and may be about to open it: the kernel asks for attributes first.
  void looked(pid_t client);
  // It has it open.
  void end(pid_t client);
  // To be called before a file is replaced, without a lock that an open could need. Returns when nobody
  // is to be waited for any more, and soon in any case.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPatience{20};  // with one who may never come
  static constexpr std::chrono::milliseconds kLongest{50};   // that somebody waits
  static constexpr std::chrono::milliseconds kLook{1};
  static constexpr std::chrono::seconds kAgain{1};  // so soon is again and again

  struct Client {
    Clock::time_point until;
    bool has_looked;
  };

  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<pid_t, Client> clients_;
  std::atomic<bool> has_clients_{false};
  Clock::time_point replaced_{};  // the last time
};

}  // namespace cacheshim
