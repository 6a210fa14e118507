// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/late_owners.h"

#include <algorithm>
#include <utility>

namespace cacheshim {

LateOwners::State LateOwners::state(uid_t owner) const {
  const auto found = owners_.find(owner);
  if (found != owners_.end() && found->second.threads > 0) return State::kLate;
  return late_ >= kMost ? State::kAmongAll : State::kInTime;
}

bool LateOwners::is_late(uid_t owner) const {
  if (!any()) return false;
  const MutexLock lock(mutex_);
  return state(owner) != State::kInTime;
}

LateOwners::Clock::duration LateOwners::begin(uid_t owner, Cause cause, Clock::time_point now) {
  const MutexLock lock(mutex_);
  forget_old(now);
  Owner& late = owners_[owner];
  if (late.threads++ == 0) {
    ++late_;
    late.remains = {};
  }
  if (cause == Cause::kProcess && late.remains.count() == 0) {
    const bool is_repeated = late.penalty.count() > 0 && now - late.ended < kMemory;
    late.penalty = is_repeated ? std::min<Clock::duration>(2 * late.penalty, kLongest) : shortest_;
    late.remains = late.penalty;
  }
  return late.remains;
}

void LateOwners::forget_old(Clock::time_point now) {
  std::erase_if(owners_, [now](const auto& owner) {
    const Owner& late = owner.second;
    return late.threads == 0 && late.queued.empty() && now - late.ended >= kMemory;
  });
}

LateOwners::State LateOwners::queue_if_late(const Notification& notification) {
  if (!any()) return State::kInTime;
  const MutexLock lock(mutex_);
  const State found = state(notification.owner);
  if (found == State::kInTime) return found;
  Owner& late = owners_[notification.owner];
  if (notification.is_of_name() && late.queued.size() >= kMostNames) return found;
  late.queued.insert(notification);
  late.wake.notify_one();
  return found;
}

// Waits until an invalidation is queued. Returns false if none is queued by `end`, and after stop().
bool LateOwners::wait_for_notification(Owner& owner, Clock::time_point end) {
  while (!stopping_ && owner.queued.empty()) {
    if (!owner.wake.wait_until(mutex_, end) && owner.queued.empty()) return false;
  }
  return !stopping_;
}

// Takes over the queues of users who counted as late only because kMost others were late.
void LateOwners::adopt_queues(Owner& owner) {
  if (late_ > kMost) return;
  for (auto& [uid, other] : owners_) {
    if (other.threads == 0) owner.queued.merge(other.queued);
  }
}

void LateOwners::serve(uid_t owner, const NotificationWriter& writer) {
  ReleasableMutexLock lock(mutex_);
  Owner& late = owners_.at(owner);  // an owner is not removed while it has a thread
  const Clock::time_point end = Clock::now() + late.remains;
  for (;;) {
    const bool is_over = !wait_for_notification(late, end);
    if (is_over && !stopping_) adopt_queues(late);
    if (stopping_ || (is_over && late.queued.empty())) break;
    const Notification notification = std::move(late.queued.extract(late.queued.begin()).value());
    lock.unlock();
    writer.send(notification);
    lock.lock();
  }
  late.ended = Clock::now();
  if (--late.threads == 0) --late_;
}

void LateOwners::stop() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  for (auto& [uid, owner] : owners_) owner.wake.notify_all();
}

}  // namespace cacheshim
