// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/ended_jobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "common/names.h"
#include "store/threads/guard.h"

namespace cacheshim {

EndedJobs::EndedJobs(EventLoop& loop, const Parts& parts)
    : parts_(parts), task_(loop, "forgetting ended jobs", [this](const auto&) { return tend(); }) {}

EndedJobs::Clock::time_point EndedJobs::tend() {
  const auto now = Clock::now();
  if (now < next_) return next_;
  next_ = now + kInterval;
  if (is_at_work_.exchange(true)) return next_;
  is_requested_ = false;
  parts_.tasks.post([this] {
    (void)run_guarded("forgetting ended jobs", [&] { forget(); });
    is_at_work_ = false;
  });
  return EventLoop::kNever;
}

void EndedJobs::forget() {
  auto left = parts_.jobs.forget_ended(parts_.limits);
  if (left.empty()) return;
  // Each pass begins with a different job. Otherwise the same jobs could fill the batch in every pass, and the others
  // would never be forgotten.
  const auto first = static_cast<std::ptrdiff_t>(passes_++ % left.size());
  std::rotate(left.begin(), left.begin() + first, left.end());
  std::vector<Notification> notifications;
  for (const auto& job : left) {
    if (notifications.size() < kBatch) add_names_of(*job, notifications);
  }
  parts_.invalidation.notifier().forget(std::move(notifications));
  request();
}

// Adds the names in a view before the names of the view itself, because the kernel does not forget a directory that has
// cached names.
void EndedJobs::add_names_of(const Job& job, std::vector<Notification>& notifications) const {
  const NodeNames& names = parts_.nodes.names();
  const std::size_t slots = job.views.count();
  const std::size_t room = (kBatch - notifications.size()) / slots;
  const auto some = names.some_of(&job, room);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const auto view = static_cast<ViewSlot>(slot);
    for (const auto& named : some)
      add({named.node, view}, {named.parent, view}, named.name, notifications);
  }
  if (some.size() == room) return;  // a later pass continues
  const NodeRef jobs{names.find(kRootNode, kJobsName), 0};
  add({job.view_root, 0}, jobs, job.id, notifications);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const auto view = static_cast<ViewSlot>(slot);
    const std::string name = fmt::format("{}@{}", job.id, job.views.owner(view).value_or(0));
    add({job.view_root, view}, jobs, name, notifications);
  }
  // The symlink .jobs/<job>, which exists if several users share the job, and the file that describes the job.
  add({names.find(jobs.node, job.id + "@"), 0}, jobs, job.id, notifications);
  const NodeRef files{names.find(names.find(kRootNode, kControlName), "jobs"), 0};
  add({names.find(files.node, job.id), 0}, files, job.id, notifications);
}

// Adds a notification that makes the kernel forget the node. Before Linux 6.18, the notification contains the node's
// name in `directory`, and the kernel takes the lock of `directory`.
void EndedJobs::add(NodeRef node, NodeRef directory, const std::string& name,
                    std::vector<Notification>& notifications) const {
  if (node.node == 0 || directory.node == 0) return;
  if (parts_.invalidation.notifier().knows_prune()) {
    notifications.push_back({encode(node), {}, Notification::Kind::kPrune});
  } else {
    notifications.push_back({encode(directory), name, Notification::Kind::kForget});
  }
}

}  // namespace cacheshim
