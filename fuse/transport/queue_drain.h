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
// A request that finds no entry in the queue of its core waits there. The kernel gives it an entry only when an entry
// is returned with an answer, not when a new entry is registered (see RequestRing). So if requests that other threads
// answer later hold all entries, the requests behind them wait for the first of those answers, which may never come.
//
// So whenever another thread is to answer a request later, the drain makes a request of its own on that core. The
// request takes a new entry and is answered immediately, and the kernel then hands that entry to the first waiting
// request. The drain repeats this until no request waits. Other requests may take the new entries first, and the
// drain's own request then waits as well: the drain does not wait for it.
class QueueDrain {
 public:
  // The receivers of one core. Thread-safe.
  class Receivers {
   public:
    // arrivals(): how many times the receivers have woken up with requests so far, perhaps with several requests at
    // once. held(): how many requests were held: a thread other than their receiver answers these later.
    virtual std::uint64_t arrivals() const = 0;
    virtual std::uint64_t held() const = 0;
    virtual bool are_at_rest() const = 0;

   protected:
    ~Receivers() = default;
  };

  // A request to the daemon's own mount. The destructor withdraws it.
  class Question {
   public:
    virtual ~Question() = default;
    virtual bool is_over() = 0;
  };
  // Makes a request to the daemon's own mount on a core, and does not wait for the answer. Returns
  // nullptr if it cannot make one.
  using Ask = std::function<std::unique_ptr<Question>(std::uint16_t core)>;

  // Throws std::system_error if it cannot create a thread. Without a thread, the caller calls
  // check_once() instead.
  explicit QueueDrain(Ask ask, bool has_thread = true);
  ~QueueDrain();
  QueueDrain(const QueueDrain&) = delete;
  QueueDrain& operator=(const QueueDrain&) = delete;

  // Call when a request of this core's queue will be answered later, held() has counted it, and new
  // entries, if any, have been registered. Any thread may call it; `receivers` must outlive the
  // drain.
  void note_held(const Receivers& receivers, std::uint16_t core);
  // Ends the thread. Call while the receivers still answer requests. Idempotent.
  void stop();
  // Checks each core that may have waiting requests, and makes a request of its own on a core that
  // may still have some. Returns true if any such core is left. The thread calls this once per
  // millisecond. Not thread-safe.
  bool check_once() EXCLUDES(mutex_);

 private:
  struct Queue {
    const Receivers* receivers = nullptr;
    std::uint64_t arrivals = 0;             // arrivals() at the last check
    std::uint64_t held = 0;                 // held() at the last question
    std::optional<std::uint64_t> asked_at;  // arrivals() before the last question
    unsigned patience = 0;                  // ticks until a blocked receiver is ignored
    unsigned pause = 0;                     // ticks until the next question
    std::vector<std::unique_ptr<Question>> questions;  // the unanswered questions
  };

  void run();
  bool is_drained(std::uint16_t core, Queue& queue) const;

  const Ask ask_;
  Mutex mutex_;
  CondVar news_;
  std::map<std::uint16_t, const Receivers*> noted_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::map<std::uint16_t, Queue> queues_;  // used only by the thread
  std::thread thread_;
};

}  // namespace cacheshim
