// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "store/threads/mutex.h"

namespace cacheshim {

// Keeps requests from waiting for an entry of a ring while there are free entries.
//
// A request that finds no free entry in the queue of its core waits there. The kernel gives it an entry only when an
// entry is returned with an answer, not when a new entry is registered (see RequestRing). So if all entries are held by
// requests that other threads answer later, the next requests wait for the first of those answers, which may never
// come.
//
// Therefore, whenever a receiver leaves a request to another thread, the drain sends its own request on that core. This
// request takes a new entry and is answered immediately; the kernel then hands the entry to the first waiting request.
// The drain repeats this until no request is waiting. If other requests take the new entries first, the drain's own
// request has to wait too, but the drain does not block on it.
class QueueDrain {
 public:
  // The receivers of one core. Thread-safe.
  class Receivers {
   public:
    // arrivals(): how many times the receivers have woken up with one or more requests. held(): how many requests the
    // receivers have left to other threads, which answer them later.
    virtual std::uint64_t arrivals() const = 0;
    virtual std::uint64_t held() const = 0;
    virtual bool are_at_rest() const = 0;

   protected:
    ~Receivers() = default;
  };

  // A request to the daemon's own mount. The destructor withdraws it.
  class Probe {
   public:
    virtual ~Probe() = default;
    virtual bool is_over() = 0;
  };
  // Sends a request to the daemon's own mount from a core, without waiting for the answer. Returns nullptr on failure.
  using StartProbe = std::function<std::unique_ptr<Probe>(std::uint16_t core)>;

  // If `has_thread` is false, creates no thread; the caller must then call check_once() instead. Throws
  // std::system_error if the thread cannot be created.
  explicit QueueDrain(StartProbe start_probe, bool has_thread = true);
  ~QueueDrain();
  QueueDrain(const QueueDrain&) = delete;
  QueueDrain& operator=(const QueueDrain&) = delete;

  // Call when another thread will answer a request of this core's queue: after held() has counted the request, and
  // after the new entry, if any, has been registered. Thread-safe. `receivers` must outlive the drain.
  void note_held(const Receivers& receivers, std::uint16_t core);
  // Ends the thread. Call while the receivers still answer requests. Idempotent.
  void stop();
  // Checks each core that may have waiting requests, and sends the drain's own request on those that may still have
  // some. Returns true if any such core is left. The drain's thread calls this function once per millisecond. Not
  // thread-safe.
  bool check_once() EXCLUDES(mutex_);

 private:
  struct Queue {
    const Receivers* receivers = nullptr;
    std::uint64_t arrivals = 0;             // arrivals() at the last check
    std::uint64_t held = 0;                 // held() at the last probe
    std::optional<std::uint64_t> arrivals_at_probe;  // arrivals() before the last probe
    unsigned patience = 0;                  // ticks until a blocked receiver is ignored
    unsigned pause = 0;                     // ticks until the next probe
    std::vector<std::unique_ptr<Probe>> probes;  // the unanswered probes
  };

  void run();
  bool is_drained(std::uint16_t core, Queue& queue) const;

  const StartProbe start_probe_;
  Mutex mutex_;
  CondVar news_;
  std::map<std::uint16_t, const Receivers*> noted_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  // Used only by the drain's thread, and by stop() after that thread has ended.
  std::map<std::uint16_t, Queue> queues_;
  std::thread thread_;
};

}  // namespace cacheshim
