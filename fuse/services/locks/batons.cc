// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/batons.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "store/sys/paths.h"
#include "store/threads/guard.h"

namespace cacheshim {
namespace {

// The interval at which the daemon checks whether the descendants of a dead creator still use the
// baton's directory, and whether a creator without a pidfd is alive.
constexpr std::chrono::milliseconds kOrphanPoll{100};

// Returns a pidfd of the creator; an empty descriptor if the creator has exited, even if another process now has its
// id.
UniqueFd watch_maker(const ProcessOrigin& maker) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, maker.process, 0)));
  return is_alive(maker) ? std::move(pidfd) : UniqueFd();
}

bool has_descendant_in(const ProcessOrigin& maker, const std::string& directory) {
  const auto processes = possible_descendants(maker);
  return std::any_of(processes.begin(), processes.end(),
                     [&](pid_t process) { return has_open_in(process, directory); });
}

}  // namespace

BatonSystem BatonSystem::real() { return {watch_maker, cacheshim::is_alive, has_descendant_in}; }

Batons::Batons(EventLoop& loop, std::function<void(const Baton&)> reap, BatonSystem system)
    : reap_(std::move(reap)),
      system_(std::move(system)),
      task_(loop, "watching the creators of batons", [this](const auto&) { return tend(); }) {}

void Batons::watch(const Baton& baton, ProcessOrigin maker) {
  removed(baton.job.get(), baton.path);
  if (maker.process == 0) return;
  {
    const MutexLock lock(mutex_);
    const auto count = counts_.find(baton.job.get());
    if (count != counts_.end() && count->second >= kMostOfJob) return;
  }
  Watched watched;
  watched.baton = baton;
  watched.maker = std::move(maker);
  watched.pidfd = system_.watch(watched.maker);
  const MutexLock lock(mutex_);
  const auto [at, is_new] = watched_.insert_or_assign(key_of(baton), std::move(watched));
  if (is_new) ++counts_[baton.job.get()];
  UniqueFd& pidfd = at->second.pidfd;
  if (pidfd && !task_.watch(pidfd.get(), 0)) pidfd.reset();
  if (!pidfd) task_.wake();  // tend() then polls the creator
}

void Batons::removed(const Job* job, const std::string& path) {
  All::node_type gone;  // destroyed, which closes its pidfd, after the mutex is released
  const MutexLock lock(mutex_);
  const auto at = watched_.find({job, path});
  if (at == watched_.end()) return;
  gone = watched_.extract(at);
  forget_one(job);
}

void Batons::forget_one(const Job* job) {
  const auto count = counts_.find(job);
  if (--count->second == 0) counts_.erase(count);
}

// Uses the pidfd if there is one, because a pidfd stands for the whole process: when the main thread has exited, other
// threads may still be running.
bool Batons::is_dead(const Watched& watched) const {
  pollfd event{watched.pidfd.get(), POLLIN, 0};
  if (!watched.pidfd) return !system_.is_alive(watched.maker);
  return ::poll(&event, 1, 0) == 1;
}

bool Batons::is_in_use(const Watched& watched) const {
  return system_.is_in_use(watched.maker, "/" + std::string(parent_path(watched.baton.path)));
}

Batons::All Batons::take_orphans() {
  All orphans;
  const MutexLock lock(mutex_);
  for (auto at = watched_.begin(); at != watched_.end();) {
    const auto next = std::next(at);
    if (is_dead(at->second)) orphans.insert(watched_.extract(at));
    at = next;
  }
  return orphans;
}

EventLoop::Clock::time_point Batons::tend() {
  All in_use;
  All orphans = take_orphans();
  while (!orphans.empty()) {
    Watched& orphan = orphans.begin()->second;
    orphan.is_orphan = true;
    bool stays = true;  // if the check throws, tend() repeats it later
    (void)run_guarded("checking a baton", [&] { stays = is_in_use(orphan); });
    if (!stays) (void)run_guarded("reaping a baton", [&] { reap_(orphan.baton); });
    auto checked = orphans.extract(orphans.begin());
    if (stays) {
      in_use.insert(std::move(checked));
    } else {
      const MutexLock lock(mutex_);
      forget_one(checked.key().first);
    }
  }
  return put_back(std::move(in_use));
}

// If a baton has been created again in the meantime, keeps the watch of the new baton.
EventLoop::Clock::time_point Batons::put_back(All in_use) {
  const MutexLock lock(mutex_);
  while (!in_use.empty()) {
    const Job* const job = in_use.begin()->first.first;
    if (!watched_.insert(in_use.extract(in_use.begin())).inserted) forget_one(job);
  }
  const bool polls = std::any_of(watched_.begin(), watched_.end(), [](const auto& watched) {
    return watched.second.is_orphan || !watched.second.pidfd;
  });
  return polls ? EventLoop::Clock::now() + kOrphanPoll : EventLoop::kNever;
}

}  // namespace cacheshim
