// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "store/threads/guard.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Threads for work that must not delay the threads that receive requests, such as invalidations and
// slow requests. Tasks start in the order of post(). If a task throws, the exception is logged. A
// task that must answer a request must itself ensure that the request is answered (Completion).
class TaskQueue {
 public:
  // Throws std::system_error if it cannot create the threads.
  explicit TaskQueue(unsigned threads) {
    try {
      for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~TaskQueue() { stop(); }

  // Does nothing once stop() is called: tasks that post tasks could otherwise keep stop() waiting.
  void post(std::function<void()> task) {
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

  // As post(), but only if fewer than `most` tasks wait. Returns true if the task was accepted.
  bool try_post(std::function<void()> task, std::size_t most) {
    {
      const MutexLock lock(mutex_);
      if (stopping_ || tasks_.size() >= most) return false;
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
    return true;
  }

  // Runs the queued tasks, then ends the threads. Idempotent.
  void stop() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void run() {
    ReleasableMutexLock lock(mutex_);
    for (;;) {
      while (!stopping_ && tasks_.empty()) wake_.wait(mutex_);
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      (void)run_guarded("a task", task);
      task = nullptr;  // without the lock: destructors of captured objects may take locks
      lock.lock();
    }
  }

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cacheshim
