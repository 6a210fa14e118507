// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/batons.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "store/sys/guard.h"
#include "store/sys/paths.h"

namespace cacheshim {
namespace {

// The interval at which the daemon checks whether the descendants of a dead creator are done, and
// whether a creator without a pidfd is alive.
constexpr std::chrono::milliseconds kOrphanPoll{100};

// Returns a pidfd of the creator; empty if it has exited, even if another process now has its id.
UniqueFd watch_process(const ProcessOrigin& maker) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, maker.process, 0)));
  return is_alive(maker) ? std::move(pidfd) : UniqueFd();
}

bool has_descendant_in(const ProcessOrigin& maker, const std::string& directory) {
  const auto processes = possible_descendants(maker);
  return std::any_of(processes.begin(), processes.end(),
                     [&](pid_t process) { return has_open_in(process, directory); });
}

}  // namespace

BatonSystem BatonSystem::real() { return {watch_process, cacheshim::is_alive, has_descendant_in}; }

Batons::Batons(EventLoop& loop, std::function<void(const Baton&)> reap, BatonSystem system)
    : reap_(std::move(reap)),
      system_(std::move(system)),
      task_(loop, "watching the creators of batons", [this](const auto&) { return tend(); }) {}

void Batons::watch(const Baton& baton, ProcessOrigin maker) {
  removed(baton.job, baton.path);
  if (maker.process == 0) return;
  Watched watched;
  watched.baton = baton;
  watched.maker = std::move(maker);
  watched.pidfd = system_.watch(watched.maker);
  const MutexLock lock(mutex_);
  watched_.push_back(std::move(watched));
  UniqueFd& pidfd = watched_.back().pidfd;
  if (pidfd && !task_.watch(pidfd.get(), 0)) pidfd.reset();
  if (!pidfd) task_.wake();  // tend() then polls the creator
}

void Batons::removed(const Job* job, const std::string& path) {
  std::list<Watched> gone;
  const MutexLock lock(mutex_);
  for (auto at = watched_.begin(); at != watched_.end();) {
    const auto next = std::next(at);
    if (at->baton.job == job && at->baton.path == path) gone.splice(gone.end(), watched_, at);
    at = next;
  }
}

// Uses the pidfd, which stands for the whole process: after the leader thread has exited, other
// threads may continue.
bool Batons::is_dead(const Watched& watched) const {
  pollfd event{watched.pidfd.get(), POLLIN, 0};
  if (!watched.pidfd) return !system_.is_alive(watched.maker);
  return ::poll(&event, 1, 0) == 1;
}

bool Batons::is_in_use(const Watched& watched) const {
  return system_.is_in_use(watched.maker, "/" + std::string(parent_path(watched.baton.path)));
}

std::list<Batons::Watched> Batons::take_orphans() {
  std::list<Watched> orphans;
  const MutexLock lock(mutex_);
  for (auto at = watched_.begin(); at != watched_.end();) {
    const auto next = std::next(at);
    if (is_dead(*at)) orphans.splice(orphans.end(), watched_, at);
    at = next;
  }
  return orphans;
}

EventLoop::Clock::time_point Batons::tend() {
  std::list<Watched> in_use;
  std::list<Watched> orphans = take_orphans();
  while (!orphans.empty()) {
    Watched& orphan = orphans.front();
    orphan.is_orphan = true;
    bool stays = true;  // if the check fails, it is repeated
    (void)run_guarded("checking a baton", [&] { stays = is_in_use(orphan); });
    if (stays) {
      in_use.splice(in_use.end(), orphans, orphans.begin());
    } else {
      (void)run_guarded("reaping a baton", [&] { reap_(orphan.baton); });
      orphans.pop_front();
    }
  }
  const MutexLock lock(mutex_);
  watched_.splice(watched_.end(), in_use);
  const bool polls = std::any_of(watched_.begin(), watched_.end(), [](const Watched& watched) {
    return watched.is_orphan || !watched.pidfd;
  });
  return polls ? EventLoop::Clock::now() + kOrphanPoll : EventLoop::kNever;
}

}  // namespace cacheshim
