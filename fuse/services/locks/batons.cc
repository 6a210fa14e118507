// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/batons.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "store/sys/guard.h"
#include "store/sys/paths.h"

namespace cacheshim {
namespace {

// The interval at which the daemon checks whether the descendants of a dead creator are done.
constexpr int kOrphanPollMs = 100;

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

Batons::Batons(std::function<void(const Baton&)> reap, BatonSystem system)
    : reap_(std::move(reap)),
      system_(std::move(system)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(system_.has_thread ? std::thread([this] { run(); }) : std::thread()) {}

Batons::~Batons() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void Batons::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // EAGAIN: the thread is already awake
}

void Batons::watch(const Baton& baton, ProcessOrigin maker) {
  removed(baton.job, baton.path);
  if (maker.process == 0) return;
  Watched watched;
  watched.baton = baton;
  watched.maker = std::move(maker);
  watched.pidfd = system_.watch(watched.maker);
  {
    const MutexLock lock(mutex_);
    watched_.push_back(std::move(watched));
  }
  wake();
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

void Batons::run() {
  for (;;) {
    std::vector<pollfd> events{{wake_.get(), POLLIN, 0}};
    bool polls = false;
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      for (const Watched& watched : watched_) {
        polls |= watched.is_orphan || !watched.pidfd;
        if (!watched.is_orphan && watched.pidfd) {
          events.push_back({watched.pidfd.get(), POLLIN, 0});
        }
      }
    }
    (void)::poll(events.data(), events.size(), polls ? kOrphanPollMs : -1);
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);  // EAGAIN: another descriptor was ready
    tend_once();
  }
}

void Batons::tend_once() {
  std::list<Watched> in_use;
  for (Watched& orphan : take_orphans()) {
    if (is_in_use(orphan)) {
      orphan.is_orphan = true;
      in_use.push_back(std::move(orphan));
    } else {
      (void)run_guarded("reaping a baton", [&] { reap_(orphan.baton); });
    }
  }
  const MutexLock lock(mutex_);
  watched_.splice(watched_.end(), in_use);
}

}  // namespace cacheshim
