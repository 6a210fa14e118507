// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Closes the descriptors of freed nodes on a separate thread. The last close of an object without a name frees its
// blocks, which can take a long time if the file system sends discards (ext4 with the mount option discard). The thread
// collects descriptors for kPause, so that it is not woken for each descriptor. Thread-safe.
class Closer {
 public:
  Closer() : thread_([this] { run(); }) {}
  ~Closer() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();  // the destructor of doomed_ closes the rest
  }
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  void close(std::vector<std::shared_ptr<const UniqueFd>> doomed) {
    if (doomed.empty()) return;
    bool is_first = false;
    {
      const MutexLock lock(mutex_);
      is_first = doomed_.empty();
      for (auto& fd : doomed) doomed_.push_back(std::move(fd));
    }
    if (is_first) wake_.notify_one();
  }

 private:
  static constexpr std::chrono::milliseconds kPause{2};

  void run() {
    ReleasableMutexLock lock(mutex_);
    while (!stopping_) {
      while (!stopping_ && doomed_.empty()) wake_.wait(mutex_);
      const auto deadline = std::chrono::steady_clock::now() + kPause;
      while (!stopping_ && wake_.wait_until(mutex_, deadline)) continue;
      std::vector<std::shared_ptr<const UniqueFd>> doomed = std::exchange(doomed_, {});
      lock.unlock();
      doomed.clear();
      lock.lock();
    }
  }

  Mutex mutex_;
  CondVar wake_;
  std::vector<std::shared_ptr<const UniqueFd>> doomed_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cacheshim
