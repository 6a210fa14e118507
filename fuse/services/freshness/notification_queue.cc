// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/notification_queue.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "store/threads/guard.h"

namespace cacheshim {

NotificationQueue::NotificationQueue(std::shared_ptr<const NotificationWriter> writer,
                                     std::shared_ptr<LateOwners> late,
                                     std::shared_ptr<const HeldDirectories> held, Settings settings)
    : writer_(std::move(writer)),
      late_(std::move(late)),
      held_(std::move(held)),
      settings_(std::move(settings)) {}

std::shared_ptr<NotificationQueue> NotificationQueue::start(
    std::shared_ptr<const NotificationWriter> writer, std::shared_ptr<LateOwners> late,
    std::shared_ptr<const HeldDirectories> held, Settings settings) {
  const std::shared_ptr<NotificationQueue> queue(new NotificationQueue(
      std::move(writer), std::move(late), std::move(held), std::move(settings)));
  const MutexLock lock(queue->mutex_);
  queue->start_thread();
  return queue;
}

// The thread is detached, because stop() must not wait for a thread that the kernel blocks.
void NotificationQueue::start_thread() {
  std::thread([self = shared_from_this(), turn = turn_ + 1] { self->run(turn); }).detach();
  ++turn_;
  has_sender_ = true;
}

bool NotificationQueue::stop() {
  late_->stop();
  const MutexLock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
  while (has_sender_) {
    const auto now = Clock::now();
    (void)replace_if_blocked(now);
    (void)ended_.wait_until(mutex_, now + deadline() / 2);
  }
  const auto end = Clock::now() + kPatience;
  while (replaced_ > 0 && ended_.wait_until(mutex_, end)) continue;
  return replaced_ == 0;
}

bool NotificationQueue::targets_any(const std::vector<Notification::DirectoryId>& held) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const auto& batch) {
    return std::any_of(batch->notifications.begin(), batch->notifications.end(),
                       [&](const Notification& notification) {
                         return notification.is_of_name() &&
                                std::find(held.begin(), held.end(), notification.directory) !=
                                    held.end();
                       });
  });
}

void NotificationQueue::post(std::vector<Notification> notifications,
                             const std::vector<Notification::DirectoryId>& held, Done done) {
  bool answer_now = false;
  {
    const MutexLock lock(mutex_);
    answer_now = notifications.empty() || stopping_ || targets_any(held);
    if (!notifications.empty() && !stopping_) {
      auto then = answer_now ? [](bool) {} : std::exchange(done, [](bool) {});
      queue_.push_back(std::make_shared<Batch>(Batch{std::move(notifications), std::move(then)}));
    }
    if (!queue_.empty() && !std::exchange(is_watched_, true)) settings_.watch();
  }
  wake_.notify_one();
  if (answer_now) done(false);
}

NotificationQueue::Clock::duration NotificationQueue::deadline() const {
  if (stopping_) return std::min<Clock::duration>(settings_.deadline, kPatience);
  return late_->any() ? settings_.deadline / 2 : settings_.deadline;
}

NotificationQueue::Clock::time_point NotificationQueue::check(Clock::time_point now) {
  const MutexLock lock(mutex_);
  if (!replace_if_blocked(now) && queue_.empty() && now - seen_at_ >= kQuiet) {
    is_watched_ = false;
    return Clock::time_point::max();
  }
  return now + deadline() / 2;
}

bool NotificationQueue::replace_if_blocked(Clock::time_point now) {
  if (std::exchange(seen_, sent_) != sent_) seen_at_ = now;
  if (!is_sending_ || now - seen_at_ < deadline()) return false;
  Batch& batch = *queue_.front();
  const Notification& blocked = batch.notifications[batch.next];
  try {
    start_thread();
  } catch (const std::system_error& error) {
    seen_at_ = now;  // check() tries again later
    spdlog::error("cannot start a thread for invalidations: {}; all invalidations wait for user {}",
                  error.what(), static_cast<int>(blocked.owner));
    return false;
  }
  // Mark the owner as late before the kernel drops the names in the owner's views (must_expire_all_). In the opposite
  // order, the kernel could cache new names in these views in between.
  make_late(blocked, now);
  must_expire_all_ = true;
  ++replaced_;
  ++batch.next;
  batch.in_time = false;
  is_sending_ = false;
  return true;
}

void NotificationQueue::make_late(const Notification& blocked, Clock::time_point now) const {
  const bool is_request = held_->contains(blocked.directory);
  const auto remains = late_->begin(
      blocked.owner, is_request ? LateOwners::Cause::kRequest : LateOwners::Cause::kProcess, now);
  const int user = static_cast<int>(blocked.owner);
  if (is_request) {
    spdlog::info("invalidations for user {} wait for a request of this user; all others go on",
                 user);
    return;
  }
  spdlog::warn(
      "a process of user {} blocks the invalidations in a view of this user; all others go on. The kernel "
      "caches nothing in the user's views meanwhile, and for {} s after that",
      user, std::chrono::duration_cast<std::chrono::seconds>(remains).count());
}

void NotificationQueue::run(std::uint64_t turn) {
  const MutexLock lock(mutex_);
  while (turn_ == turn && !(stopping_ && queue_.empty())) {
    if (!queue_.empty()) {
      send_front(turn);
    } else if (repeats_.empty()) {
      wake_.wait(mutex_);
    } else {
      const auto due = repeats_.front().due;
      (void)wake_.wait_until(mutex_, due);
    }
    if (turn_ == turn) queue_due_repeats();
  }
  if (turn_ == turn) {
    has_sender_ = false;
  } else {
    --replaced_;
  }
  ended_.notify_all();
}

void NotificationQueue::send_front(std::uint64_t turn) {
  // Stays in the queue, because post() checks its notifications.
  const std::shared_ptr<Batch> batch = queue_.front();
  for (; batch->next < batch->notifications.size(); ++batch->next) {
    Notification& notification = batch->notifications[batch->next];
    if (defer(*batch, notification)) continue;
    is_sending_ = true;
    ++sent_;
    mutex_.unlock();
    writer_->send(notification);
    mutex_.lock();
    if (turn_ != turn) {
      mutex_.unlock();
      (void)run_guarded("late invalidations", [&] { late_->serve(notification.owner, *writer_); });
      return mutex_.lock();
    }
    is_sending_ = false;
  }
  finish_front();
}

// If the invalidation can block and the view's owner is late, queues it for the thread that serves the owner. Returns
// true if the caller must not send it. For a node, the caller sends an invalidation that cannot block: changes
// `notification` to the node's attributes, and returns false.
bool NotificationQueue::defer(Batch& batch, Notification& notification) {
  if (!notification.can_block()) return false;
  const LateOwners::State state = late_->queue_if_late(notification);
  if (state == LateOwners::State::kInTime) return false;
  batch.in_time = false;
  if (notification.kind == Notification::Kind::kNode) {
    notification.kind = Notification::Kind::kAttributes;
    return false;
  }
  if (state == LateOwners::State::kAmongAll) must_expire_all_ = true;
  return true;
}

void NotificationQueue::finish_front() {
  Batch& batch = *queue_.front();
  const bool expires = std::exchange(must_expire_all_, false) && writer_->knows_epoch();
  mutex_.unlock();
  if (expires) writer_->send({0, {}, Notification::Kind::kEpoch});
  (void)run_guarded("an answer", [&] { batch.done(batch.in_time); });
  mutex_.lock();
  if (settings_.repeats_names && !batch.is_repeat) {
    Repeat repeat{Clock::now() + kRepeatAfter, {}};
    for (Notification& notification : batch.notifications) {
      if (notification.kind != Notification::Kind::kName) continue;
      // If the batch is late, copies the notification, because a blocked thread may still be reading it.
      repeat.notifications.push_back(batch.in_time ? std::move(notification) : notification);
    }
    if (!repeat.notifications.empty()) repeats_.push_back(std::move(repeat));
  }
  queue_.pop_front();
}

// Appends the due repeats to the queue, where post() checks them like all other notifications.
void NotificationQueue::queue_due_repeats() {
  while (!repeats_.empty() && repeats_.front().due <= Clock::now()) {
    queue_.push_back(std::make_shared<Batch>(
        Batch{std::move(repeats_.front().notifications), [](bool) {}, true}));
    repeats_.pop_front();
  }
}

}  // namespace cacheshim
