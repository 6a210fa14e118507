// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/push_queue.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <utility>
#include <variant>

#include "remote/entry_exchange.h"
#include "store/sys/sys.h"
#include "store/threads/guard.h"

namespace cacheshim {
namespace {

using remote::Message;
using remote::RemoteError;

constexpr int kMostAttempts = 3;
// After the engine has refused an entry, for example because it is full.
constexpr std::chrono::seconds kPause{10};
constexpr std::chrono::milliseconds kPoll{100};  // for the end of the queue

}  // namespace

bool PushQueue::add(const std::string& unit) {
  ++unsent_;
  if (thread_.try_post([this, unit] { push(unit); }, kMostUnsent)) return true;
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

void PushQueue::push(const std::string& unit) {
  Sent sent = Sent::kFailed;
  (void)run_guarded("pushing an entry to the remote tier", [&] {
    UniqueFd object;
    for (int i = 0; i < kMostAttempts && sent == Sent::kFailed && may_send(); ++i) {
      if (!object) object = pack(unit);
      sent = object ? send(unit, object) : Sent::kDropped;
    }
  });
  if (sent != Sent::kDone) parts_.counters.remote_dropped.fetch_add(1, std::memory_order_relaxed);
  --unsent_;
  events_.on_done(unit);
}

// Blocks while the engine is unusable. After finish_within(), does not block, and returns false if the engine is
// unusable or the time has run out.
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

// Returns a sealed file with the unit's object; an empty descriptor if there can be none, for example because the unit
// was evicted.
UniqueFd PushQueue::pack(const std::string& unit) const {
  const auto object = remote::pack_unit(parts_.store, parts_.entries, unit, 0, key_, settings_);
  if (const auto* const error = std::get_if<remote::ObjectError>(&object)) {
    spdlog::info("an entry is not sent to the remote tier: {}", error->message);
    return {};
  }
  auto file = remote::make_sealed_file(std::get<std::string>(object));
  if (file) return *std::move(file);
  spdlog::warn("'{}' is not sent to the remote tier: {}", unit, std::strerror(file.error().code()));
  return {};
}

// Sends the object and waits for the reply.
remote::Outcome<Message> PushQueue::put(const std::string& unit, const UniqueFd& object) {
  using Outcome = remote::Outcome<Message>;
  const auto promise = std::make_shared<std::promise<Outcome>>();
  auto future = promise->get_future();
  const bool is_sent = client_.send(
      {{"op", "put"}, {"key", remote::object_key(settings_, unit)}},
      [promise](Outcome outcome) { promise->set_value(std::move(outcome)); }, object.get());
  if (!is_sent)
    return RemoteError{RemoteError::Kind::kUnavailable, "cacheshim-remote takes no requests"};
  const auto deadline = Clock::now() + settings_.timeout + remote::AsyncClient::kAnswerMargin;
  while (future.wait_for(kPoll) != std::future_status::ready) {
    if (is_given_up()) return RemoteError{RemoteError::Kind::kUnavailable, "the mount ends"};
    if (Clock::now() >= deadline) client_.restart();  // the reply is then an error
  }
  return future.get();
}

PushQueue::Sent PushQueue::send(const std::string& unit, const UniqueFd& object) {
  const auto outcome = put(unit, object);
  if (const auto* const error = std::get_if<RemoteError>(&outcome)) {
    if (error->kind == RemoteError::Kind::kUnavailable) {
      events_.on_unusable(*error);
      return Sent::kFailed;
    }
    parts_.counters.remote_errors.fetch_add(1, std::memory_order_relaxed);
    spdlog::warn("'{}' is not sent to the remote tier: {}", unit, error->text);
    const MutexLock lock(mutex_);
    send_after_ = Clock::now() + kPause;
    return Sent::kDropped;
  }
  if (!std::get<Message>(outcome).json.value("stored", false)) return Sent::kDone;  // there already
  const auto st = sys::stat_fd(object.get());
  parts_.counters.remote_pushed.fetch_add(1, std::memory_order_relaxed);
  parts_.counters.remote_bytes_out.fetch_add(st ? static_cast<std::uint64_t>(st->st_size) : 0,
                                             std::memory_order_relaxed);
  return Sent::kDone;
}

}  // namespace cacheshim
