// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/ended_jobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "common/names.h"
#include "store/sys/guard.h"

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
  // Each pass begins with another job, since the first ones may take the whole batch each time.
  std::ranges::rotate(left, left.begin() + static_cast<std::ptrdiff_t>(passes_++ % left.size()));
  std::vector<Notice> notices;
  for (const auto& job : left) {
    if (notices.size() < kBatch) add_names_of(*job, notices);
  }
  auto sent = std::make_shared<std::promise<void>>();
  auto done = sent->get_future();
  parts_.invalidation.notifier().post(std::move(notices), {}, [sent] { sent->set_value(); });
  done.wait();
  request();
}

// The names in a view come before those of the view itself. The kernel forgets a directory together with all names below
// it, and meanwhile holds the lock of the directory's parent; all users need the parent of a view.
void EndedJobs::add_names_of(const Job& job, std::vector<Notice>& notices) const {
  const NodeNames& names = parts_.nodes.names();
  const std::size_t slots = job.views.count();
  const std::size_t room = (kBatch - notices.size()) / slots;
  const auto some = names.some_of(&job, room);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const auto view = static_cast<ViewSlot>(slot);
    const uid_t owner = job.views.owner(view).value_or(kNoOwner);
    for (const auto& named : some) {
      notices.push_back({encode({named.parent, view}), named.name, Notice::Kind::kForget, owner});
    }
  }
  if (some.size() == room) return;  // a later pass continues
  const uid_t owner = job.views.owner().value_or(kNoOwner);
  const auto add = [&](NodeIndex directory, std::string name) {
    if (directory == 0) return;
    notices.push_back({encode({directory, 0}), std::move(name), Notice::Kind::kForget, owner});
  };
  const NodeIndex jobs = names.find(kRootNode, kJobsName);
  add(jobs, job.id);
  for (const uid_t uid : job.views.owners()) add(jobs, fmt::format("{}@{}", job.id, uid));
  add(names.find(names.find(kRootNode, kControlName), "jobs"), job.id);
}

}  // namespace cacheshim
