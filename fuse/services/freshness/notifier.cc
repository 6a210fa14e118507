// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/notifier.h"

#include <algorithm>
#include <utility>

namespace cacheshim {

Notifier::Notifier(int fuse_fd, EventLoop& loop, LateOwners::Clock::duration shortest_late)
    : writer_(std::make_shared<NotificationWriter>(fuse_fd)),
      late_(std::make_shared<LateOwners>(shortest_late)),
      checking_(loop, "checking invalidations", [this](const auto&) { return check(); }),
      queue_(NotificationQueue::start(writer_, late_, held_, settings(kDeadline, true))),
      names_(NotificationQueue::start(writer_, late_, held_, settings(kLongDeadline, false))) {}

// post() wakes the loop's thread only if the loop does not already call check() regularly. So it wakes the thread at
// most once per NotificationQueue::kQuiet.
NotificationQueue::Settings Notifier::settings(NotificationQueue::Clock::duration deadline,
                                               bool repeats_names) const {
  return {deadline, repeats_names, [this] { checking_.wake(); }};
}

NotificationQueue::Clock::time_point Notifier::check() const {
  const auto now = NotificationQueue::Clock::now();
  return std::min(queue_->check(now), names_->check(now));
}

void Notifier::stop() {
  const bool queue_ended = queue_->stop();
  const bool names_ended = names_->stop();
  is_blocked_ = !forgetting_.stop() || !names_ended || !queue_ended;
  checking_.stop();
}

void Notifier::post(std::vector<Notification> notifications, const std::vector<DirectoryId>& held,
                    std::function<void()> done) {
  queue_->post(std::move(notifications), held, [done = std::move(done)](bool) { done(); });
}

void Notifier::invalidate_attributes(const std::vector<DirectoryId>& nodes) const {
  for (const DirectoryId node : nodes) writer_->send({node, {}, Notification::Kind::kAttributes});
}

void Notifier::invalidate_name(Notification name, std::function<void(bool)> done) {
  names_->post({std::move(name)}, {}, std::move(done));
}

void Notifier::forget(std::vector<Notification> names) {
  if (names.empty()) return;
  const auto send = [writer = writer_, names = std::move(names)](const IsWanted& is_wanted) {
    for (const Notification& name : names) {
      if (!is_wanted()) return;
      writer->send(name);
    }
  };
  (void)forgetting_.try_post(send, 1);  // if an earlier call is still sending, the caller tries again later
}

}  // namespace cacheshim
