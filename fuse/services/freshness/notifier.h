// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "store/sys/mutex.h"

namespace cacheshim {

// Tells the kernel that what it has cached may be wrong, from one thread of its own.
//
// A notice for an entry waits in the kernel for the lock of the folder, which the sender of a
// request in that folder holds until we answer it. So notices are never sent from a handler. A
// publisher's answer is held back until the other views have been told; that is safe as long as no
// answer waits, directly or not, for a notice of a folder that its own request holds. Hence the one
// rule of post(): an answer whose folders are the target of a notice that is queued or under way is
// given first. As the queue is strictly first in, first out, a notice that blocks then always waits
// for a request that a worker answers without us.
//
// The kernel asks again about an expired name without any lock, so that an answer given before a
// change may be taken in after the notice of it. Names are therefore told of twice, a moment apart.
class Notifier {
 public:
  using FolderId = std::uint64_t;  // nodeid, as the kernel knows it
  struct Notice {
    enum class Kind : std::uint8_t {
      kName,   // `name` in `folder`: look it up again
      kNode,   // attributes and data, or the listing, of `folder`, which may be any node
      kEpoch,  // all names; the kernel must know it (set_protocol)
    };
    FolderId folder = 0;
    std::string name;
    Kind kind = Kind::kName;
  };

  // Writes to the session's descriptor, which must outlive the notifier.
  explicit Notifier(int fuse_fd);
  ~Notifier() { stop(); }

  // Sends what is queued, and nothing from then on: post() calls `done` at once. To be called while
  // requests are answered still, since a notice may wait for one. Idempotent.
  void stop() EXCLUDES(mutex_);

  // What the kernel has answered to INIT: the minor number of its protocol.
  void set_protocol(unsigned minor) { knows_epoch_ = minor >= kEpochProtocol; }
  bool knows_epoch() const { return knows_epoch_; }

  // Sends the notices, then calls `done` on the notifier's thread; or, by the rule above, calls
  // `done` at once. `held` are the folders that the request to be answered holds; no notice may
  // be for one of them.
  void post(std::vector<Notice> notices, std::vector<FolderId> held, std::function<void()> done)
      EXCLUDES(mutex_);

  // Tells of the attributes of these nodes alone, their data and listings being as they were: at once,
  // on the caller's thread, since the kernel waits for no folder and no page then.
  void tell_attributes(const std::vector<FolderId>& nodes) const;

  // Tells of one name, on the caller's thread. Blocks until the kernel has released the lock of the folder. Never call
  // it from a handler.
  void tell_name_and_wait(FolderId folder, const std::string& name) const {
    send_name({folder, name});
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Batch {
    std::vector<Notice> notices;
    std::function<void()> done;
    bool is_repeat;
  };
  struct Repeat {
    Clock::time_point due;
    std::vector<Notice> notices;
  };
  static constexpr unsigned kEpochProtocol = 44;  // Linux 6.16
  static constexpr auto kRepeatAfter = std::chrono::milliseconds(20);

  void run();
  void run_front() REQUIRES(mutex_);
  void queue_due_repeats() REQUIRES(mutex_);
  void send(const Notice& notice) const;
  void send_name(const Notice& notice) const;
  void send_node(FolderId node, std::int64_t offset) const;
  void send_epoch() const;
  bool targets_any(const std::vector<FolderId>& held) const REQUIRES(mutex_);

  const int fuse_fd_;
  std::atomic<bool> knows_epoch_{false};
  Mutex mutex_;  // not held while a notice is sent or `done` runs
  CondVar wake_;
  std::deque<Batch> queue_ GUARDED_BY(mutex_);  // the front one is under way
  std::deque<Repeat> repeats_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cacheshim
