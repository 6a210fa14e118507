// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "store/threads/mutex.h"
#include "store/threads/slices.h"

// Threads for the long tasks of several users, such as publishing and control requests. No user can
// delay the others' tasks: the users take turns, and the queue runs only a few tasks of each user at
// a time, fewer than there are threads. The kernel's scheduler then divides the CPU between the tasks.
namespace cacheshim {

// Identifies the lane of a task. Each user has one lane for the user's own tasks and one for root's work for this user.
// So root's work waits neither for the user's own tasks nor for root's work for other users.
struct FairUser {
  FairUser(uid_t the_uid, bool is_by_root = false) : uid(the_uid), by_root(is_by_root) {}
  uid_t uid;
  bool by_root;
  auto operator<=>(const FairUser&) const = default;
};

struct FairTask {
  FairUser user;
  std::function<void()> run;
  // If it returns false before the task starts, the task is dropped. May be called on any thread,
  // with the queue's mutex held.
  IsWanted is_wanted = {};
};

// Decides the order of the tasks. Not thread-safe.
class FairOrder {
 public:
  // `running`: the maximum number of one user's tasks that run at a time.
  explicit FairOrder(unsigned running) : most_running_(running) {}

  void add(FairTask task);
  // Returns the next task and counts it as running, or returns nothing if no waiting task may run
  // now. Drops tasks that are no longer wanted.
  std::optional<FairTask> take();
  // Call when a task of `user`, returned by take(), has ended.
  void end(const FairUser& user);
  // Drops the user's waiting tasks that are no longer wanted, and returns how many are left.
  std::size_t drop_unwanted(const FairUser& user);
  // Whether take() may return a task.
  bool has_next() const;
  bool is_empty() const { return turns_.empty(); }
  // Returns the tasks dropped since the last call. The caller destroys them when it holds no lock.
  std::vector<FairTask> take_dropped();

 private:
  struct Lane {
    std::deque<FairTask> waiting;
    unsigned running = 0;
  };
  void drop_unwanted(Lane& lane);

  const unsigned most_running_;
  std::map<FairUser, Lane> lanes_;  // the lanes of the users with waiting or running tasks
  std::deque<FairUser> turns_;      // the users with waiting tasks, the next one first
  std::vector<FairTask> dropped_;
};

// Runs tasks in the order of FairOrder, on threads that it starts when they are needed. If a task
// throws, the exception is logged. A task that must answer a request must itself ensure that the
// request is answered. Thread-safe.
class FairQueue {
 public:
  struct Limits {
    unsigned threads;
    unsigned running;                            // tasks of one user that run at a time
    std::size_t waiting = std::size_t{1} << 10;  // tasks of one user that wait; only for try_post()
  };
  // Throws std::system_error if it cannot start a first thread.
  explicit FairQueue(const Limits& limits);
  ~FairQueue() { stop(); }
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Does nothing once stop() is called: tasks that post tasks could otherwise keep stop() waiting.
  void post(const FairUser& user, std::function<void()> run) EXCLUDES(mutex_);
  // As post(), but only if fewer than Limits::waiting tasks of the user wait. Returns true if the
  // task was accepted.
  bool try_post(FairTask task) EXCLUDES(mutex_);
  // Runs the queued tasks, then ends the threads. Idempotent.
  void stop() EXCLUDES(mutex_);

 private:
  bool accept(FairTask task, bool is_limited) EXCLUDES(mutex_);
  void start_thread_if_needed() REQUIRES(mutex_);
  void run() EXCLUDES(mutex_);

  const Limits limits_;
  Mutex mutex_{LockRank::kFairQueue};
  CondVar wake_;
  FairOrder order_ GUARDED_BY(mutex_);
  unsigned idle_ GUARDED_BY(mutex_) = 0;  // threads that wait for a task
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
