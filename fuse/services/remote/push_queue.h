// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "common/unique_fd.h"
#include "fuse/services/remote/make_remote_entries.h"
#include "remote/async_client.h"
#include "remote/settings.h"
#include "remote/signing_keys.h"
#include "store/threads/mutex.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Sends published entries to the engine, one after the other, on a thread of its own. While the engine is unusable, the
// entries wait. Thread-safe.
class PushQueue {
 public:
  static constexpr std::size_t kMostUnsent = 4096;  // beyond that, entries are dropped

  // Called on the queue's thread, with no lock held.
  struct Events {
    std::function<void(const remote::RemoteError&)>
        on_unusable;                                       // the engine has not taken an entry
    std::function<void(const std::string& unit)> on_done;  // the entry was sent, or was dropped
  };
  // All references must outlive this object.
  PushQueue(const RemoteParts& parts, const remote::Settings& settings,
            const remote::SecretKey& key, remote::AsyncClient& client, Events events)
      : parts_(parts),
        settings_(settings),
        key_(key),
        client_(client),
        events_(std::move(events)) {}

  // Returns false if the queue is full. Does not block.
  [[nodiscard]] bool add(const std::string& unit);
  // Call when the engine has become usable or unusable; initially it is unusable. Does not block.
  void set_usable(bool is_usable) EXCLUDES(mutex_);
  // Sends the queued entries for at most `time`, and drops the rest; if the engine is unusable, drops all. Later entries
  // are dropped. Blocks. Idempotent.
  void finish_within(std::chrono::seconds time) EXCLUDES(mutex_);
  std::size_t unsent() const { return unsent_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Sent { kDone, kDropped, kFailed };

  void push(const std::string& unit) EXCLUDES(mutex_);
  bool may_send() EXCLUDES(mutex_);
  bool is_given_up() const EXCLUDES(mutex_);
  UniqueFd pack(const std::string& unit) const;
  remote::Outcome<remote::Message> put(const std::string& unit, const UniqueFd& object)
      EXCLUDES(mutex_);
  Sent send(const std::string& unit, const UniqueFd& object) EXCLUDES(mutex_);

  const RemoteParts& parts_;
  const remote::Settings& settings_;
  const remote::SecretKey& key_;
  remote::AsyncClient& client_;
  const Events events_;
  std::atomic<std::size_t> unsent_{0};
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_usable_ GUARDED_BY(mutex_) = false;
  Clock::time_point send_after_ GUARDED_BY(mutex_);  // after the engine has refused an entry
  Clock::time_point finish_by_ GUARDED_BY(mutex_) = Clock::time_point::max();
  TaskQueue thread_{1};  // keep last: its thread uses all the others
};

}  // namespace cacheshim
