// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "store/threads/mutex.h"

namespace cacheshim {

// One lock for each unit that is being published. Units never share a lock: if a hash of the name selected the lock, a
// job could choose names that delay other jobs' units. Thread-safe.
class UnitLocks {
 public:
  explicit UnitLocks(LockRank rank) : rank_(rank) {}

  // Returns the unit's lock. Keep the pointer while the lock is held.
  std::shared_ptr<Mutex> of(const std::string& unit) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(locks_, [](const auto& known) { return known.second.expired(); });
    std::weak_ptr<Mutex>& known = locks_[unit];
    std::shared_ptr<Mutex> found = known.lock();
    if (!found) known = found = std::make_shared<Mutex>(rank_);
    return found;
  }

 private:
  const LockRank rank_;
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<Mutex>> locks_ GUARDED_BY(mutex_);
};

// Makes jobs that publish the same unit at the same time take turns. The second job then finds the first job's files in
// the base, and need not sync its own. A turn only saves work; it is not needed for correctness, because the publisher
// checks at the end that the base has not changed. So each job waits only for a limited time, and a job with large
// files does not delay the others for longer than this time. Thread-safe.
class UnitTurns {
 public:
  class Turn {
   public:
    Turn(UnitTurns& turns, std::string unit, std::chrono::milliseconds at_most)
        : turns_(turns), unit_(std::move(unit)), is_held_(turns.try_take(unit_, at_most)) {}
    ~Turn() {
      if (is_held_) turns_.end(unit_);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    bool is_held() const { return is_held_; }

   private:
    UnitTurns& turns_;
    const std::string unit_;
    const bool is_held_;
  };

 private:
  bool try_take(const std::string& unit, std::chrono::milliseconds at_most) EXCLUDES(mutex_) {
    const auto deadline = std::chrono::steady_clock::now() + at_most;
    const MutexLock lock(mutex_);
    while (taken_.contains(unit)) {
      if (!ended_.wait_until(mutex_, deadline) && taken_.contains(unit)) return false;
    }
    taken_.insert(unit);
    return true;
  }
  void end(const std::string& unit) EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      taken_.erase(unit);
    }
    ended_.notify_all();
  }

  Mutex mutex_;
  CondVar ended_;
  std::set<std::string> taken_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
