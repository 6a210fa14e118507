// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "store/sys/mutex.h"

namespace cacheshim {

// Keeps requests from waiting for an entry of a ring while there are entries.
//
// A request that finds no entry in the queue of its core waits there. The kernel hands it on when an entry is
// given back with an answer, and not when a new one is registered (see RequestRing). When requests that are
// answered later take all entries at once, the requests behind them would therefore wait for the first of those
// answers, which may never come.
//
// So whenever a request is answered later, the drain makes a request of its own on that core. The request takes a
// new entry and is answered at once, and the kernel hands that entry to the first of those that wait. The drain
// asks again until nothing comes of it. Others may take the new entries first, and the drain's own request then
// waits as well: it is not waited for.
class QueueDrain {
 public:
  // The receivers of one core. Any thread may ask.
  class Receivers {
   public:
    // How often requests came, ever, and how many of them were answered later.
    virtual std::uint64_t arrivals() const = 0;
    virtual std::uint64_t held() const = 0;
    virtual bool are_at_rest() const = 0;

   protected:
    ~Receivers() = default;
  };

  // A request to the daemon's own mount. Destroying it withdraws it.
  class Question {
   public:
    virtual ~Question() = default;
    virtual bool is_over() = 0;
  };
  // Makes such a request on a core and does not wait for the answer. nullptr if it cannot.
  using Ask = std::function<std::unique_ptr<Question>(std::uint16_t core)>;

  // Throws std::system_error where there is no thread to be had.
  explicit QueueDrain(Ask ask);
  ~QueueDrain();
  QueueDrain(const QueueDrain&) = delete;
  QueueDrain& operator=(const QueueDrain&) = delete;

  // A request of this core's queue is answered later, and held() has counted it. New entries have been
  // registered, if there are to be any. Any thread may call it; `receivers` must outlive the drain.
  void note_held(const Receivers& receivers, std::uint16_t core);
  // The receivers must still be answering. Idempotent.
  void stop();

 private:
  struct Queue {
    const Receivers* receivers = nullptr;
    std::uint64_t arrivals = 0;             // at the last look
    std::uint64_t held = 0;                 // at the last question
    std::optional<std::uint64_t> asked_at;  // arrivals before the last question
    unsigned patience = 0;                  // ticks until a receiver is not waited for any more
    unsigned pause = 0;                     // ticks until the next question
    std::vector<std::unique_ptr<Question>> questions;  // that have not been answered yet
  };

  void run();
  bool look_at(std::uint16_t core, Queue& queue) const;

  const Ask ask_;
  Mutex mutex_;
  CondVar news_;
  std::map<std::uint16_t, const Receivers*> noted_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::map<std::uint16_t, Queue> queues_;  // the thread's
  std::thread thread_;
};

}  // namespace cacheshim
