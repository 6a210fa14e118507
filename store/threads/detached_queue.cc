// SPDX-License-Identifier: Apache-2.0
#include "store/threads/detached_queue.h"

#include <chrono>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "store/threads/guard.h"
#include "store/threads/mutex.h"

namespace cacheshim {

struct DetachedQueue::Shared {
  bool is_stopping() {
    const MutexLock lock(mutex);
    return stopping;
  }

  Mutex mutex;  // not held while a task runs
  CondVar ended;
  // The front task is running; it is removed when it ends.
  std::deque<Task> tasks GUARDED_BY(mutex);
  bool stopping GUARDED_BY(mutex) = false;
};

DetachedQueue::DetachedQueue() : shared_(std::make_shared<Shared>()) {}

bool DetachedQueue::try_post(Task task, std::size_t most) {
  const MutexLock lock(shared_->mutex);
  if (shared_->stopping || shared_->tasks.size() >= most) return false;
  try {
    if (shared_->tasks.empty()) std::thread([shared = shared_] { run(shared); }).detach();
  } catch (const std::system_error&) {  // the system is out of threads
    return false;
  }
  shared_->tasks.push_back(std::move(task));
  return true;
}

void DetachedQueue::run(const std::shared_ptr<Shared>& shared) {
  const IsWanted is_wanted = [&shared] { return !shared->is_stopping(); };
  ReleasableMutexLock lock(shared->mutex);
  while (!shared->tasks.empty()) {
    Task task = std::move(shared->tasks.front());
    lock.unlock();
    (void)run_guarded("a task", [&] { task(is_wanted); });
    task = nullptr;  // without the lock: destructors of captured objects may take locks
    lock.lock();
    shared->tasks.pop_front();
  }
  shared->ended.notify_all();
}

bool DetachedQueue::stop() {
  constexpr std::chrono::milliseconds kPatience{100};
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::deque<Task> dropped;
  const MutexLock lock(shared_->mutex);
  shared_->stopping = true;
  while (shared_->tasks.size() > 1) {
    dropped.push_back(std::move(shared_->tasks.back()));
    shared_->tasks.pop_back();
  }
  while (!shared_->tasks.empty() && shared_->ended.wait_until(shared_->mutex, end)) continue;
  return shared_->tasks.empty();
}

}  // namespace cacheshim
