// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/notice_queue.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "store/threads/guard.h"

namespace cacheshim {

NoticeQueue::NoticeQueue(std::shared_ptr<const NoticeWriter> writer,
                         std::shared_ptr<LateOwners> late,
                         std::shared_ptr<const HeldDirectories> held, Settings settings)
    : writer_(std::move(writer)),
      late_(std::move(late)),
      held_(std::move(held)),
      settings_(std::move(settings)) {}

std::shared_ptr<NoticeQueue> NoticeQueue::start(std::shared_ptr<const NoticeWriter> writer,
                                                std::shared_ptr<LateOwners> late,
                                                std::shared_ptr<const HeldDirectories> held,
                                                Settings settings) {
  const std::shared_ptr<NoticeQueue> queue(
      new NoticeQueue(std::move(writer), std::move(late), std::move(held), std::move(settings)));
  const MutexLock lock(queue->mutex_);
  queue->start_thread();
  return queue;
}

// The thread is detached, because stop() must not wait for a thread that the kernel blocks.
void NoticeQueue::start_thread() {
  std::thread([self = shared_from_this(), turn = turn_ + 1] { self->run(turn); }).detach();
  ++turn_;
  has_sender_ = true;
}

bool NoticeQueue::stop() {
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

bool NoticeQueue::targets_any(const std::vector<Notice::DirectoryId>& held) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const auto& batch) {
    return std::any_of(batch->notices.begin(), batch->notices.end(), [&](const Notice& notice) {
      return notice.is_of_name() &&
             std::find(held.begin(), held.end(), notice.directory) != held.end();
    });
  });
}

void NoticeQueue::post(std::vector<Notice> notices, const std::vector<Notice::DirectoryId>& held,
                       Done done) {
  bool answer_now = false;
  {
    const MutexLock lock(mutex_);
    answer_now = notices.empty() || stopping_ || targets_any(held);
    if (!notices.empty() && !stopping_) {
      auto then = answer_now ? [](bool) {} : std::exchange(done, [](bool) {});
      queue_.push_back(std::make_shared<Batch>(Batch{std::move(notices), std::move(then)}));
    }
    if (!queue_.empty() && !std::exchange(is_watched_, true)) settings_.watch();
  }
  wake_.notify_one();
  if (answer_now) done(false);
}

NoticeQueue::Clock::duration NoticeQueue::deadline() const {
  if (stopping_) return std::min<Clock::duration>(settings_.deadline, kPatience);
  return late_->any() ? settings_.deadline / 2 : settings_.deadline;
}

NoticeQueue::Clock::time_point NoticeQueue::check(Clock::time_point now) {
  const MutexLock lock(mutex_);
  if (!replace_if_blocked(now) && queue_.empty() && now - seen_at_ >= kQuiet) {
    is_watched_ = false;
    return Clock::time_point::max();
  }
  return now + deadline() / 2;
}

bool NoticeQueue::replace_if_blocked(Clock::time_point now) {
  if (std::exchange(seen_, sent_) != sent_) seen_at_ = now;
  if (!is_sending_ || now - seen_at_ < deadline()) return false;
  Batch& batch = *queue_.front();
  const Notice& blocked = batch.notices[batch.next];
  try {
    start_thread();
  } catch (const std::system_error& error) {
    seen_at_ = now;  // check() tries again later
    spdlog::error("cannot start a thread for invalidations: {}; all invalidations wait for user {}",
                  error.what(), static_cast<int>(blocked.owner));
    return false;
  }
  // Mark the owner as late first. If the kernel dropped the names in the owner's views before that, it could cache new
  // names there afterwards.
  make_late(blocked, now);
  must_expire_all_ = true;
  ++replaced_;
  ++batch.next;
  batch.in_time = false;
  is_sending_ = false;
  return true;
}

void NoticeQueue::make_late(const Notice& blocked, Clock::time_point now) const {
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

void NoticeQueue::run(std::uint64_t turn) {
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

void NoticeQueue::send_front(std::uint64_t turn) {
  const std::shared_ptr<Batch> batch = queue_.front();  // stays in the queue, because post() checks its notices
  for (; batch->next < batch->notices.size(); ++batch->next) {
    Notice& notice = batch->notices[batch->next];
    if (defer(*batch, notice)) continue;
    is_sending_ = true;
    ++sent_;
    mutex_.unlock();
    writer_->send(notice);
    mutex_.lock();
    if (turn_ != turn) {
      mutex_.unlock();
      (void)run_guarded("late invalidations", [&] { late_->serve(notice.owner, *writer_); });
      return mutex_.lock();
    }
    is_sending_ = false;
  }
  finish_front();
}

// Returns true if the invalidation must not be sent now, because it could block and the view's owner is late. For a
// node of a late owner, reduces the invalidation to the node's attributes, which cannot block, and returns false.
bool NoticeQueue::defer(Batch& batch, Notice& notice) {
  if (!notice.can_block()) return false;
  const LateOwners::State state = late_->queue_if_late(notice);
  if (state == LateOwners::State::kInTime) return false;
  batch.in_time = false;
  if (notice.kind == Notice::Kind::kNode) {
    notice.kind = Notice::Kind::kAttributes;
    return false;
  }
  if (state == LateOwners::State::kAmongAll) must_expire_all_ = true;
  return true;
}

void NoticeQueue::finish_front() {
  Batch& batch = *queue_.front();
  const bool expires = std::exchange(must_expire_all_, false) && writer_->knows_epoch();
  mutex_.unlock();
  if (expires) writer_->send({0, {}, Notice::Kind::kEpoch});
  (void)run_guarded("an answer", [&] { batch.done(batch.in_time); });
  mutex_.lock();
  if (settings_.repeats_names && !batch.is_repeat) {
    Repeat repeat{Clock::now() + kRepeatAfter, {}};
    for (Notice& notice : batch.notices) {
      if (notice.kind != Notice::Kind::kName) continue;
      // If the batch is late, copies the notice, because a blocked thread may still be reading it.
      repeat.notices.push_back(batch.in_time ? std::move(notice) : notice);
    }
    if (!repeat.notices.empty()) repeats_.push_back(std::move(repeat));
  }
  queue_.pop_front();
}

// Appends the due repeats to the queue, where post() checks them like all other notices.
void NoticeQueue::queue_due_repeats() {
  while (!repeats_.empty() && repeats_.front().due <= Clock::now()) {
    queue_.push_back(
        std::make_shared<Batch>(Batch{std::move(repeats_.front().notices), [](bool) {}, true}));
    repeats_.pop_front();
  }
}

}  // namespace cacheshim
