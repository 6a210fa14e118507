// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "common/counters.h"
#include "common/unique_fd.h"
#include "remote/async_client.h"
#include "remote/settings.h"
#include "store/threads/mutex.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Sends objects to the engine, one after the other, on a separate thread. While the engine is unusable, the objects
// wait. Thread-safe.
class PushQueue {
 public:
  enum class Sent { kStored, kPresent, kDropped, kFailed };
  struct Item {  // the functions are called on the queue's thread, with no lock held
    std::string key;
    std::string name;       // for messages, for example "'triton/KEY'"
    bool replaces = false;  // whether to remove the engine's object with this key first
    std::function<UniqueFd()>
        make{};  // returns a sealed file with the object; empty: sends nothing
    std::function<void(Sent)> on_done{};  // never with kFailed
  };
  // `most_unsent`: the maximum number of waiting objects. `on_unusable`: called on the queue's thread when a request
  // has failed because the engine is unavailable. All references must outlive this object.
  PushQueue(std::size_t most_unsent, Counters& counters, const remote::Settings& settings,
            remote::AsyncClient& client,
            std::function<void(const remote::RemoteError&)> on_unusable)
      : most_unsent_(most_unsent),
        counters_(counters),
        settings_(settings),
        client_(client),
        on_unusable_(std::move(on_unusable)) {}

  // Returns false if the queue is full. Does not block.
  [[nodiscard]] bool add(Item item);
  // Call when the engine has become usable or unusable; initially it is unusable. Does not block.
  void set_usable(bool is_usable) EXCLUDES(mutex_);
  // Sends the queued objects for at most `time`, and drops the rest; if the engine is unusable, drops all. From then
  // on, add() returns false. Blocks. Idempotent.
  void finish_within(std::chrono::seconds time) EXCLUDES(mutex_);
  // Returns true if finish_within() has been called and the queue will send nothing more.
  bool is_given_up() const EXCLUDES(mutex_);
  std::size_t unsent() const { return unsent_; }

 private:
  using Clock = std::chrono::steady_clock;

  void push(const Item& item) EXCLUDES(mutex_);
  bool may_send() EXCLUDES(mutex_);
  remote::Outcome<remote::Message> call(const char* op, const std::string& key, int object = -1)
      EXCLUDES(mutex_);
  Sent send(const Item& item, const UniqueFd& object) EXCLUDES(mutex_);

  const std::size_t most_unsent_;
  Counters& counters_;
  const remote::Settings& settings_;
  remote::AsyncClient& client_;
  const std::function<void(const remote::RemoteError&)> on_unusable_;
  std::atomic<std::size_t> unsent_{0};
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_usable_ GUARDED_BY(mutex_) = false;
  Clock::time_point send_after_ GUARDED_BY(mutex_);  // set after the engine has refused an object
  Clock::time_point finish_by_ GUARDED_BY(mutex_) = Clock::time_point::max();
  TaskQueue thread_{1};  // keep last: its thread uses the other members
};

}  // namespace cacheshim
