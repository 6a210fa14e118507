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

// Sends invalidations to the kernel. post() sends them from a separate thread.
//
// In the kernel, the invalidation of an entry waits for the lock of the directory, and the sender
// of a request in that directory holds this lock until the daemon answers. So a request handler
// never invalidates names itself. A publisher's reply is delayed until the other views are
// invalidated; that is safe as long as no reply waits, directly or indirectly, for the invalidation
// of a directory that its own request holds. Hence the one rule of post(): if a queued or current
// invalidation concerns a directory that a request holds, that request is answered first. As the
// queue is strictly first in, first out, a blocked invalidation then always waits for a request
// that a receiver answers without the notifier.
//
// The kernel looks an expired name up again without any lock, so an answer from before a change may
// arrive after the invalidation. Names are therefore invalidated again after kRepeatAfter.
class Notifier {
 public:
  using DirectoryId = std::uint64_t;  // node id, as in the kernel's requests
  struct Notice {
    enum class Kind : std::uint8_t {
      kName,   // `name` in `directory`: the kernel must look it up again
      kNode,   // `directory`, here any node: its attributes and its data or listing
      kEpoch,  // all names; requires kernel support (set_protocol)
    };
    DirectoryId directory = 0;
    std::string name;
    Kind kind = Kind::kName;
  };

  // Writes to the session's descriptor, which must outlive the notifier.
  explicit Notifier(int fuse_fd);
  ~Notifier() { stop(); }

  // Sends the queued invalidations and ends the thread. From then on post() sends nothing and calls
  // `done` immediately. Call while the daemon still answers requests, because an invalidation may wait
  // for a reply. Idempotent.
  void stop() EXCLUDES(mutex_);

  // Sets the minor protocol version from the kernel's INIT request.
  void set_protocol(unsigned minor) { knows_epoch_ = minor >= kEpochProtocol; }
  bool knows_epoch() const { return knows_epoch_; }

  // Sends the invalidations, then calls `done` on the notifier's thread. Calls `done` immediately
  // if `notices` is empty, after stop(), or if the rule above requires that the request is answered
  // first, because of invalidations that are queued already. `held`: the directories whose locks
  // the request holds. Requires: `notices` has no name in one of them.
  void post(std::vector<Notice> notices, std::vector<DirectoryId> held, std::function<void()> done)
      EXCLUDES(mutex_);

  // Invalidates the attributes of these nodes, but not their data and listings. Does so on the
  // caller's thread, since in this case the kernel waits for no directory lock and no page.
  void invalidate_attributes(const std::vector<DirectoryId>& nodes) const;

  // Invalidates one name, on the caller's thread. Blocks until the kernel has released the lock of
  // the directory. Never call it from a handler.
  void invalidate_name_and_wait(DirectoryId directory, const std::string& name) const {
    send_name({directory, name});
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
  void send_node(DirectoryId node, std::int64_t offset) const;
  void send_epoch() const;
  bool targets_any(const std::vector<DirectoryId>& held) const REQUIRES(mutex_);

  const int fuse_fd_;
  std::atomic<bool> knows_epoch_{false};
  Mutex mutex_;  // not held while an invalidation is sent or `done` runs
  CondVar wake_;
  std::deque<Batch> queue_ GUARDED_BY(mutex_);  // the first one is being sent
  std::deque<Repeat> repeats_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cacheshim
