// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "store/threads/slices.h"

namespace cacheshim {

// A thread for work that a user's process can block in the kernel for as long as the user likes. No other thread waits
// for this work. The thread exists while there are tasks. Tasks run in the order of try_post(); if a task throws, the
// exception is logged. Thread-safe.
class DetachedQueue {
 public:
  // The task's argument is a function that returns false after stop(); see slices.h.
  using Task = std::function<void(const IsWanted&)>;

  DetachedQueue();
  ~DetachedQueue() { (void)stop(); }
  DetachedQueue(const DetachedQueue&) = delete;
  DetachedQueue& operator=(const DetachedQueue&) = delete;

  // Returns false and drops the task if `most` tasks already run or wait, if stop() was called, or if no thread can be
  // started. The thread may outlive this object, so the task must own all that it uses.
  bool try_post(Task task, std::size_t most);
  // Drops the waiting tasks. Returns false if the current task does not end within 0.1 s; the thread then ends when the
  // task does. Idempotent.
  bool stop();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace cacheshim
