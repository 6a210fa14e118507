// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/push_queue.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "store/sys/sys.h"
#include "store/threads/guard.h"

namespace cacheshim {
namespace {

using remote::Message;
using remote::RemoteError;

constexpr int kMostAttempts = 3;
// How long the queue sends nothing after the engine has refused an object, for example because the engine is full.
constexpr std::chrono::seconds kPushPause{10};

}  // namespace

bool PushQueue::add(Item item) {
  ++unsent_;
  if (thread_.try_post([this, item = std::move(item)] { push(item); }, most_unsent_)) return true;
  --unsent_;
  return false;
}

void PushQueue::set_usable(bool is_usable) {
  {
    const MutexLock lock(mutex_);
    is_usable_ = is_usable;
  }
  changed_.notify_all();
}

void PushQueue::finish_within(std::chrono::seconds time) {
  {
    const MutexLock lock(mutex_);
    finish_by_ = std::min(finish_by_, Clock::now() + time);
  }
  changed_.notify_all();
  thread_.stop();
}

void PushQueue::push(const Item& item) {
  Sent sent = Sent::kFailed;
  (void)run_guarded("pushing to the remote tier", [&] {
    UniqueFd object;
    for (int i = 0; i < kMostAttempts && sent == Sent::kFailed && may_send(); ++i) {
      if (!object) object = item.make();
      sent = object ? send(item, object) : Sent::kDropped;
    }
  });
  item.on_done(sent == Sent::kFailed ? Sent::kDropped : sent);
  --unsent_;
}

// Blocks until the engine is usable and no pause (kPushPause) is in progress, then returns true. After finish_within(),
// does not block: returns false if the queue may not send now, or if the time has run out.
bool PushQueue::may_send() {
  const MutexLock lock(mutex_);
  for (;;) {
    const auto now = Clock::now();
    if (is_usable_ && now >= send_after_ && now < finish_by_) return true;
    if (finish_by_ != Clock::time_point::max()) return false;
    (void)changed_.wait_until(mutex_, now + std::chrono::seconds(1));
  }
}

bool PushQueue::is_given_up() const {
  const MutexLock lock(mutex_);
  if (finish_by_ == Clock::time_point::max()) return false;
  return !is_usable_ || Clock::now() >= finish_by_;
}

remote::Outcome<Message> PushQueue::call(const char* op, const std::string& key, int object) {
  return client_.call(
      {{"op", op}, {"key", key}}, settings_.timeout, [this] { return is_given_up(); }, object);
}

PushQueue::Sent PushQueue::send(const Item& item, const UniqueFd& object) {
  // Ignores an error of the removal. If two engines are stacked (StackedTier), the far engine takes the object. It may
  // have removed the old object even if the near engine has failed.
  if (item.replaces) (void)call("remove", item.key);
  const auto outcome = call("put", item.key, object.get());
  if (const auto* const error = std::get_if<RemoteError>(&outcome)) {
    if (error->kind == RemoteError::Kind::kUnavailable) {
      on_unusable_(*error);
      return Sent::kFailed;
    }
    counters_.remote_errors.fetch_add(1, std::memory_order_relaxed);
    spdlog::warn("{} is not sent to the remote tier: {}", item.name, error->text);
    const MutexLock lock(mutex_);
    send_after_ = Clock::now() + kPushPause;
    return Sent::kDropped;
  }
  if (!std::get<Message>(outcome).json.value("stored", false)) return Sent::kPresent;
  const auto st = sys::stat_fd(object.get());
  counters_.remote_bytes_out.fetch_add(st ? static_cast<std::uint64_t>(st->st_size) : 0,
                                       std::memory_order_relaxed);
  return Sent::kStored;
}

}  // namespace cacheshim
