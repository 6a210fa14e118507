// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "fuse/services/freshness/held_directories.h"
#include "fuse/services/freshness/late_owners.h"
#include "fuse/services/freshness/notification.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Sends invalidations in order, on one thread. If a user's process delays an invalidation beyond a deadline, later
// invalidations no longer wait for it.
//
// A thread that is blocked in the kernel cannot be interrupted. check() therefore replaces it: the blocked thread
// serves the user from then on (LateOwners), and a new thread continues with the next invalidation. So the queue has
// one thread, plus one for each late user.
//
// The threads share ownership of the queue with the Notifier, because they may outlive the Notifier. Thread-safe.
class NotificationQueue : public std::enable_shared_from_this<NotificationQueue> {
 public:
  using Clock = LateOwners::Clock;
  // `in_time`: whether the kernel has processed each invalidation of the batch before its deadline.
  using Done = std::function<void(bool in_time)>;
  struct Settings {
    Clock::duration deadline;  // for one invalidation; halved while any user is late
    bool repeats_names;        // whether to invalidate names a second time, after kRepeatAfter
    // The queue calls this when check() must be called regularly from now on. The queue may hold locks, so the function
    // must not block.
    std::function<void()> watch;
  };

  // Starts the thread. Throws std::system_error.
  static std::shared_ptr<NotificationQueue> start(std::shared_ptr<const NotificationWriter> writer,
                                                  std::shared_ptr<LateOwners> late,
                                                  std::shared_ptr<const HeldDirectories> held,
                                                  Settings settings);

  // Sends the queued invalidations and ends the threads. Returns false if the kernel still blocks some of the threads;
  // each of these ends once the kernel no longer blocks it. After stop(), post() sends nothing and calls `done`
  // immediately. Call while the daemon still answers requests, because an invalidation may wait for a reply.
  // Idempotent.
  bool stop() EXCLUDES(mutex_);
  // Sends the invalidations, then calls `done` on the queue's thread. Calls `done` immediately, with false, in three
  // cases: `notifications` is empty; stop() has been called; or a queued or current invalidation concerns a name in one
  // of the directories `held`, whose locks the caller's request holds. In the last case, the queue still sends the
  // invalidations.
  void post(std::vector<Notification> notifications,
            const std::vector<Notification::DirectoryId>& held, Done done) EXCLUDES(mutex_);
  // Replaces the thread if an invalidation has blocked it beyond the deadline. Returns when to call check() again. If
  // that is Clock::time_point::max(), call it again only after Settings::watch has been called.
  Clock::time_point check(Clock::time_point now) EXCLUDES(mutex_);

 private:
  struct Batch {
    std::vector<Notification> notifications;
    Done done;
    bool is_repeat = false;
    // The next notification; earlier ones are sent, queued for a late user, or blocked.
    std::size_t next = 0;
    bool in_time = true;
  };
  struct Repeat {
    Clock::time_point due;
    std::vector<Notification> notifications;
  };
  static constexpr auto kRepeatAfter = std::chrono::milliseconds(20);
  // Once the queue has sent no invalidation for this long, check() need not be called.
  static constexpr auto kQuiet = std::chrono::seconds(10);
  // stop() waits at most this long for one invalidation, and then at most this long for the threads of late users.
  static constexpr auto kPatience = std::chrono::milliseconds(100);

  NotificationQueue(std::shared_ptr<const NotificationWriter> writer,
                    std::shared_ptr<LateOwners> late, std::shared_ptr<const HeldDirectories> held,
                    Settings settings);

  void start_thread() REQUIRES(mutex_);
  void run(std::uint64_t turn) EXCLUDES(mutex_);
  void send_front(std::uint64_t turn) REQUIRES(mutex_);
  bool defer(Batch& batch, Notification& notification) REQUIRES(mutex_);
  void finish_front() REQUIRES(mutex_);
  void queue_due_repeats() REQUIRES(mutex_);
  bool targets_any(const std::vector<Notification::DirectoryId>& held) const REQUIRES(mutex_);
  Clock::duration deadline() const REQUIRES(mutex_);
  bool replace_if_blocked(Clock::time_point now) REQUIRES(mutex_);
  void make_late(const Notification& blocked, Clock::time_point now) const;

  const std::shared_ptr<const NotificationWriter> writer_;
  const std::shared_ptr<LateOwners> late_;
  const std::shared_ptr<const HeldDirectories> held_;
  const Settings settings_;
  // Not held while an invalidation is sent or `done` runs.
  Mutex mutex_{LockRank::kNotificationQueue};
  CondVar wake_;
  CondVar ended_;
  std::deque<std::shared_ptr<Batch>> queue_ GUARDED_BY(mutex_);  // the first one is being sent
  std::deque<Repeat> repeats_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::uint64_t turn_ GUARDED_BY(mutex_) = 0;   // counts the threads; only the latest one sends
  bool has_sender_ GUARDED_BY(mutex_) = false;  // whether the latest thread is still running
  // The number of earlier threads that are still running.
  unsigned replaced_ GUARDED_BY(mutex_) = 0;
  bool is_sending_ GUARDED_BY(mutex_) = false;
  // Counts invalidations, including the one that is being sent.
  std::uint64_t sent_ GUARDED_BY(mutex_) = 0;
  bool must_expire_all_ GUARDED_BY(mutex_) = false;  // expire all names before the next `done`
  // ---- used by check()
  bool is_watched_ GUARDED_BY(mutex_) = false;
  std::uint64_t seen_ GUARDED_BY(mutex_) = 0;  // sent_ at the last check
  Clock::time_point seen_at_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
