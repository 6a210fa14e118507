// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "store/threads/slices.h"

namespace cacheshim {

// A thread for work that nobody waits for, because a user's process can block it in the kernel for as long as the user
// likes. It exists while there are tasks. Tasks run in the order of try_post(), with the error handling of TaskQueue.
// Thread-safe.
class DetachedQueue {
 public:
  // Gets a function that returns false after stop(); see slices.h.
  using Task = std::function<void(const IsWanted&)>;

  DetachedQueue();
  ~DetachedQueue() { (void)stop(); }
  DetachedQueue(const DetachedQueue&) = delete;
  DetachedQueue& operator=(const DetachedQueue&) = delete;

  // Returns false, and drops the task, if `most` tasks run or wait already, after stop(), and if no thread can be
  // started. The thread may outlive this object, so the task must own all that it uses.
  bool try_post(Task task, std::size_t most);
  // Drops the tasks that have not begun. Returns false if the current one does not end within 0.1 s; its thread then
  // ends when the kernel lets it. Idempotent.
  bool stop();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace cacheshim
