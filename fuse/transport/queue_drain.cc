// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/queue_drain.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace cacheshim {
namespace {

constexpr auto kDrainTick = std::chrono::milliseconds(1);
constexpr unsigned kPatience = 50;  // ticks, while a receiver is blocked
constexpr std::size_t kMostProbes = 16;
constexpr unsigned kPauseTicks = 4;  // ticks per unanswered probe

}  // namespace

QueueDrain::QueueDrain(StartProbe start_probe, bool has_thread)
    : start_probe_(std::move(start_probe)) {
  if (has_thread) thread_ = std::thread([this] { run(); });
}

QueueDrain::~QueueDrain() { stop(); }

void QueueDrain::note_held(const Receivers& receivers, std::uint16_t core) {
  {
    const MutexLock lock(mutex_);
    if (!noted_.emplace(core, &receivers).second) return;
  }
  news_.notify_one();
}

void QueueDrain::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  news_.notify_one();
  if (thread_.joinable()) thread_.join();
  queues_.clear();
}

void QueueDrain::run() {
  ReleasableMutexLock lock(mutex_);
  for (;;) {
    if (queues_.empty()) {
      while (!stopping_ && noted_.empty()) news_.wait(mutex_);
    } else {
      // check_once() handles the cores that are noted during the tick.
      const auto tick = std::chrono::steady_clock::now() + kDrainTick;
      while (!stopping_ && news_.wait_until(mutex_, tick)) continue;
    }
    if (stopping_) return;
    lock.unlock();
    check_once();
    lock.lock();
  }
}

bool QueueDrain::check_once() {
  std::map<std::uint16_t, const Receivers*> noted;
  {
    const MutexLock lock(mutex_);
    noted.swap(noted_);
  }
  for (const auto& [core, receivers] : noted) {
    Queue& queue = queues_[core];
    if (queue.receivers != nullptr) continue;
    queue.receivers = receivers;
    queue.patience = kPatience;
  }
  for (auto at = queues_.begin(); at != queues_.end();) {
    at = is_drained(at->first, at->second) ? queues_.erase(at) : std::next(at);
  }
  return !queues_.empty();
}

// Returns true if no request is waiting for an entry. If one is waiting, or if this is unknown, returns false, and also
// sends a request to the daemon's own mount. It sends this request only once all receivers of the core are idle: then
// there is a free entry for the request, and no other request on this core takes the entry first. If a receiver stays
// blocked for kPatience ticks, this function no longer waits for it.
bool QueueDrain::is_drained(std::uint16_t core, Queue& queue) const {
  std::erase_if(queue.probes, [](const auto& probe) { return probe->is_over(); });
  const std::uint64_t arrivals = queue.receivers->arrivals();
  if (std::exchange(queue.arrivals, arrivals) != arrivals) return false;
  if (!queue.receivers->are_at_rest() && queue.patience > 0) {
    --queue.patience;
    return false;
  }
  if (queue.pause > 0) {
    --queue.pause;
    return false;
  }
  const std::uint64_t held = queue.receivers->held();
  const bool nothing_came =
      queue.arrivals_at_probe && arrivals <= *queue.arrivals_at_probe + 1 && held == queue.held;
  if (nothing_came && queue.probes.empty()) return true;
  queue.patience = kPatience;
  queue.pause = kPauseTicks * static_cast<unsigned>(queue.probes.size());
  queue.arrivals_at_probe = arrivals;
  queue.held = held;
  if (queue.probes.size() == kMostProbes) queue.probes.pop_back();  // withdraws it
  if (auto probe = start_probe_(core)) {
    queue.probes.push_back(std::move(probe));
  } else {
    queue.arrivals_at_probe.reset();  // so that a later check tries again
  }
  return false;
}

}  // namespace cacheshim
