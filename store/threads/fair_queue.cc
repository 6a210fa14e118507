// SPDX-License-Identifier: Apache-2.0
#include "store/threads/fair_queue.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "store/threads/guard.h"

namespace cacheshim {

void FairOrder::add(FairTask task) {
  Lane& lane = lanes_[task.user];
  if (lane.waiting.empty()) turns_.push_back(task.user);
  lane.waiting.push_back(std::move(task));
}

void FairOrder::drop_unwanted(Lane& lane) {
  std::erase_if(lane.waiting, [this](FairTask& task) {
    if (is_still_wanted(task.is_wanted)) return false;
    dropped_.push_back(std::move(task));
    return true;
  });
}

std::size_t FairOrder::drop_unwanted(const FairUser& user) {
  const auto found = lanes_.find(user);
  if (found == lanes_.end()) return 0;
  Lane& lane = found->second;
  drop_unwanted(lane);
  if (!lane.waiting.empty()) return lane.waiting.size();
  std::erase(turns_, user);
  if (lane.running == 0) lanes_.erase(found);
  return 0;
}

std::optional<FairTask> FairOrder::take() {
  for (std::size_t turns_left = turns_.size(); turns_left > 0; --turns_left) {
    const FairUser user = turns_.front();
    turns_.pop_front();
    const auto found = lanes_.find(user);
    Lane& lane = found->second;
    if (lane.running >= most_running_) {
      turns_.push_back(user);
      continue;
    }
    while (!lane.waiting.empty() && !is_still_wanted(lane.waiting.front().is_wanted)) {
      dropped_.push_back(std::move(lane.waiting.front()));
      lane.waiting.pop_front();
    }
    if (lane.waiting.empty()) {
      if (lane.running == 0) lanes_.erase(found);
      continue;
    }
    FairTask task = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    ++lane.running;
    if (!lane.waiting.empty()) turns_.push_back(user);
    return task;
  }
  return std::nullopt;
}

void FairOrder::end(const FairUser& user) {
  const auto found = lanes_.find(user);
  Lane& lane = found->second;
  --lane.running;
  if (lane.running == 0 && lane.waiting.empty()) lanes_.erase(found);
}

bool FairOrder::has_next() const {
  return std::any_of(turns_.begin(), turns_.end(), [this](const FairUser& user) {
    return lanes_.find(user)->second.running < most_running_;
  });
}

std::vector<FairTask> FairOrder::take_dropped() { return std::exchange(dropped_, {}); }

FairQueue::FairQueue(const Limits& limits) : limits_(limits), order_(limits.running) {
  const MutexLock lock(mutex_);
  threads_.reserve(limits.threads);
  threads_.emplace_back([this] { run(); });
}

void FairQueue::post(const FairUser& user, std::function<void()> run) {
  (void)accept({user, std::move(run)}, /*is_limited=*/false);  // refused only once stop() is called
}

bool FairQueue::try_post(FairTask task) { return accept(std::move(task), /*is_limited=*/true); }

bool FairQueue::accept(FairTask task, bool is_limited) {
  std::vector<FairTask> dropped;  // destroyed after the lock has been released
  {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    const bool is_full = is_limited && order_.drop_unwanted(task.user) >= limits_.waiting;
    dropped = order_.take_dropped();
    if (is_full) return false;
    order_.add(std::move(task));
    start_thread_if_needed();
  }
  wake_.notify_one();
  return true;
}

// If no thread can be started, the task waits for one of the existing threads.
void FairQueue::start_thread_if_needed() {
  if (idle_ > 0 || stopping_ || threads_.size() >= limits_.threads || !order_.has_next()) return;
  try {
    threads_.emplace_back([this] { run(); });
  } catch (const std::exception&) {
    return;
  }
}

void FairQueue::stop() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void FairQueue::run() {
  ReleasableMutexLock lock(mutex_);
  for (;;) {
    std::optional<FairTask> task = order_.take();
    std::vector<FairTask> dropped = order_.take_dropped();
    if (task) {
      start_thread_if_needed();  // for a task that may run beside this one
      lock.unlock();
      dropped.clear();
      (void)run_guarded("a task", task->run);
      const FairUser user = task->user;
      task.reset();
      lock.lock();
      order_.end(user);
      if (stopping_) wake_.notify_all();
    } else if (!dropped.empty()) {
      lock.unlock();
      dropped.clear();
      lock.lock();
    } else if (stopping_ && order_.is_empty()) {
      return;
    } else {
      ++idle_;
      wake_.wait(mutex_);
      --idle_;
    }
  }
}

}  // namespace cacheshim
