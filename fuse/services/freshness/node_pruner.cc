// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/node_pruner.h"

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "store/threads/guard.h"

namespace cacheshim {

UserAccount& NodePruner::account_of(const Job& job) const {
  return parts_.limits.account(job.views.owner().value_or(0));
}

NodePruner::Clock::time_point NodePruner::tend() {
  const auto now = Clock::now();
  if (now < next_) return next_;
  next_ = now + kInterval;
  if (is_pruning_.exchange(true)) return next_;
  is_requested_ = false;
  parts_.tasks.post([this] {
    (void)run_guarded("pruning nodes", [&] {
      for (const auto& job : parts_.jobs.all()) prune(*job);
    });
    is_pruning_ = false;
  });
  return EventLoop::kNever;
}

// Stops when the user is no longer near the limit, or when no name is left to prune. Also stops when the kernel has
// kept more than half of a batch: processes then use these files in a way that the daemon cannot see (O_PATH).
void NodePruner::prune(const Job& job) const {
  UserAccount& account = account_of(job);
  while (account.is_near(Limit::kNodes)) {
    const std::uint64_t before = account.used(Limit::kNodes);
    const std::size_t sent = prune_batch(job);
    if (sent == 0 || account.used(Limit::kNodes) + sent / 2 > before) return;
  }
}

std::size_t NodePruner::prune_batch(const Job& job) const {
  const auto names = parts_.nodes.names().some_files_of(
      &job, kBatch, [this](NodeIndex node) { return !parts_.open_files.has(node); });
  if (names.empty()) return 0;
  std::vector<Notification> notifications;
  for (std::size_t slot = 0; slot < job.views.count(); ++slot) {
    const auto view = static_cast<ViewSlot>(slot);
    const uid_t owner = job.views.owner(view).value_or(kNoOwner);
    for (const auto& named : names) {
      notifications.push_back(
          {encode({named.parent, view}), named.name, Notification::Kind::kForget, owner});
    }
  }
  auto sent = std::make_shared<std::promise<void>>();
  auto done = sent->get_future();
  parts_.invalidation.notifier().post(std::move(notifications), {}, [sent] { sent->set_value(); });
  done.wait();
  return names.size();
}

}  // namespace cacheshim
