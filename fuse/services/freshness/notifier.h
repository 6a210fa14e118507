// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "fuse/services/freshness/held_directories.h"
#include "fuse/services/freshness/late_owners.h"
#include "fuse/services/freshness/notification.h"
#include "fuse/services/freshness/notification_queue.h"
#include "store/threads/detached_queue.h"
#include "store/threads/event_loop.h"

namespace cacheshim {

// Sends invalidations to the kernel. post() sends them from a separate thread.
//
// When the daemon invalidates a name, the kernel waits for the directory's lock, and a process whose request concerns a
// name in that directory may hold this lock until the daemon answers. So a request handler never invalidates names
// itself. The daemon delays a publisher's reply until the other views are invalidated. This alone could deadlock:
//   1. The publisher's request holds a directory's lock, and its reply waits for the queued invalidations.
//   2. One of these invalidations concerns a name in that directory, so it waits for the lock.
//   3. The kernel releases the lock only after the reply.
// So post() calls `done` immediately if a queued or current invalidation concerns a name in one of the directories
// `held`. The queue is strictly first in, first out. A blocked invalidation therefore always waits either for a request
// that a receiver answers without the notifier, or for a process that holds the directory's lock for another reason.
// The queue waits up to kDeadline for the process, and then continues without the blocked invalidation (LateOwners).
//
// The kernel looks up an expired name without taking any lock, so an answer that the daemon computed before a change
// may arrive after the invalidation. The notifier therefore invalidates each name a second time, shortly afterwards.
class Notifier {
 public:
  using Notification = cacheshim::Notification;
  using DirectoryId = Notification::DirectoryId;
  static constexpr auto kDeadline = std::chrono::milliseconds(200);

  // `fuse_fd`: the session's descriptor, to which the notifier writes. `fuse_fd` and `loop` must outlive the notifier.
  // `shortest_late`: see LateOwners.
  Notifier(int fuse_fd, EventLoop& loop,
           LateOwners::Clock::duration shortest_late = std::chrono::seconds(1));
  ~Notifier() { stop(); }

  // Sends the queued invalidations and ends the threads. From then on post() sends nothing and calls
  // `done` immediately. Call while the daemon still answers requests, because an invalidation may wait
  // for a reply. Idempotent.
  void stop();
  // After stop(): whether the kernel still blocks a thread of the notifier. While it does, this process cannot exit
  // completely, and /dev/fuse stays open.
  bool is_blocked() const { return is_blocked_; }

  // Sets the minor protocol version from the kernel's INIT request.
  void set_protocol(unsigned minor) { writer_->set_protocol(minor); }
  bool knows_epoch() const { return writer_->knows_epoch(); }
  bool knows_prune() const { return writer_->knows_prune(); }
  // Returns true if the kernel must not cache anything in this user's views.
  bool is_late(uid_t owner) const { return late_->is_late(owner); }
  bool is_any_late() const { return late_->any(); }

  // Until the result is destroyed, requests that hold the locks of these directories count as waiting for the daemon.
  std::shared_ptr<void> hold(std::vector<DirectoryId> directories) {
    return held_->hold(std::move(directories));
  }
  // Sends the invalidations, then calls `done` on the notifier's thread. Calls `done` immediately if `notifications` is
  // empty, after stop(), or if queued invalidations require that the request be answered first (see above). `held`: the
  // directories whose locks the request holds. Requires: `notifications` has no name in any of them.
  void post(std::vector<Notification> notifications, const std::vector<DirectoryId>& held,
            std::function<void()> done);

  // Invalidates the attributes of these nodes, but not their data and listings. Runs on the caller's thread, because
  // the kernel then waits neither for a directory's lock nor for a page.
  void invalidate_attributes(const std::vector<DirectoryId>& nodes) const;

  // Invalidates one name, then calls `done` with true: by then, every request that held the directory's lock at the
  // time of this call has released it. Calls `done` with false if the invalidation takes too long (kLongDeadline), if
  // the view's owner is late, and after stop(). Invalidations from post() never wait for those from this function.
  void invalidate_name(Notification name, std::function<void(bool)> done);

  // Begins to send notifications of the kinds kForget and kPrune, which make the kernel forget names that no process
  // needs. Does nothing while the notifications of an earlier call are being sent, and after stop(). A user's process
  // can block the sending thread, even in a directory that all users share. So no request waits for this thread, and no
  // user becomes late because of it. While the thread is blocked, the kernel forgets no more names.
  void forget(std::vector<Notification> names);

 private:
  static constexpr auto kLongDeadline = std::chrono::seconds(5);  // for invalidate_name(), for which no reply waits

  NotificationQueue::Settings settings(NotificationQueue::Clock::duration deadline,
                                       bool repeats_names) const;
  NotificationQueue::Clock::time_point check() const;

  const std::shared_ptr<NotificationWriter> writer_;
  const std::shared_ptr<LateOwners> late_;
  const std::shared_ptr<HeldDirectories> held_ = std::make_shared<HeldDirectories>();
  EventLoop::Task checking_;
  const std::shared_ptr<NotificationQueue> queue_;
  const std::shared_ptr<NotificationQueue> names_;
  DetachedQueue forgetting_;
  bool is_blocked_ = false;
};

}  // namespace cacheshim
