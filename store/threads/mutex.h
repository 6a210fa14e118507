// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#include "store/threads/lock_ranks.h"
#include "store/threads/thread_annotations.h"

// Wrappers of the standard library's mutexes and condition variable, for Clang's thread safety analysis and the check
// of the lock order (lock_ranks.h). In builds without this check, they are as fast as the wrapped types.
namespace cacheshim {

// Wraps std::mutex. The default rank is for a mutex under which no other lock is taken.
class CAPABILITY("mutex") Mutex {
 public:
  explicit Mutex(LockRank rank = LockRank::kLeaf) : check_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ACQUIRE() {
    check_.before_lock();
    mutex_.lock();
  }
  void unlock() RELEASE() {
    mutex_.unlock();
    check_.after_unlock();
  }
  // For lambdas that run while the mutex is held.
  void assert_held() const ASSERT_CAPABILITY(this) { check_.require(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
  [[no_unique_address]] RankCheck check_;
};

// Wraps std::shared_mutex.
class CAPABILITY("mutex") SharedMutex {
 public:
  explicit SharedMutex(LockRank rank = LockRank::kLeaf) : check_(rank) {}
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() ACQUIRE() {
    check_.before_lock();
    mutex_.lock();
  }
  bool try_lock() TRY_ACQUIRE(true) {
    if (!mutex_.try_lock()) return false;
    check_.after_try_lock();
    return true;
  }
  void unlock() RELEASE() {
    mutex_.unlock();
    check_.after_unlock();
  }
  void lock_shared() ACQUIRE_SHARED() {
    check_.before_lock();
    mutex_.lock_shared();
  }
  void unlock_shared() RELEASE_SHARED() {
    mutex_.unlock_shared();
    check_.after_unlock();
  }
  // For lambdas and callbacks that run while the mutex is held, exclusively or at least shared.
  void assert_held() const ASSERT_CAPABILITY(this) { check_.require(); }
  void assert_held_shared() const ASSERT_SHARED_CAPABILITY(this) { check_.require(); }

 private:
  std::shared_mutex mutex_;
  [[no_unique_address]] RankCheck check_;
};

// Holds a mutex during its lifetime.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// As MutexLock, but can release the mutex earlier, and take it again.
class SCOPED_CAPABILITY ReleasableMutexLock {
 public:
  explicit ReleasableMutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~ReleasableMutexLock() RELEASE() {
    if (is_held_) mutex_.unlock();
  }
  ReleasableMutexLock(const ReleasableMutexLock&) = delete;
  ReleasableMutexLock& operator=(const ReleasableMutexLock&) = delete;

  void unlock() RELEASE() {
    is_held_ = false;
    mutex_.unlock();
  }
  void lock() ACQUIRE() {
    mutex_.lock();
    is_held_ = true;
  }

 private:
  Mutex& mutex_;
  bool is_held_ = true;
};

// Holds a shared mutex exclusively.
class SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~WriterLock() RELEASE() { mutex_.unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Holds a shared mutex in shared mode.
class SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~ReaderLock() RELEASE() { mutex_.unlock_shared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Wraps std::condition_variable. A wait may wake spuriously: call it in a loop that tests the
// condition. No overload takes the condition as a lambda, because the analysis does not know which
// locks a lambda's caller holds.
class CondVar {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false if `time` has passed.
  template <class Clock, class Duration>
  bool wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& time)
      REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, time);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  bool wait_for(Mutex& mutex, std::chrono::nanoseconds time) REQUIRES(mutex) {
    return wait_until(mutex, std::chrono::steady_clock::now() + time);
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace cacheshim
