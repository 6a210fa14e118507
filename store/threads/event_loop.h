// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "common/unique_fd.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// One thread that does the short recurring work of several services: at a set time, after a call to wake(), or once a
// descriptor is readable. Work that may block for long needs its own thread (TaskQueue). Thread-safe, except
// EventLoop::start() and EventLoop::stop().
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point kNever = Clock::time_point::max();

  // The work of one service. The objects that `run` uses, and the loop, must outlive the task.
  class Task {
   public:
    // Called on the loop's thread, with no lock held. The first call comes after a call to wake(), or once a watched
    // descriptor is readable. `readable` has the ids of the watched descriptors that have become readable. Returns the
    // time of the next call; a call to wake(), or a readable descriptor, brings that time forward.
    using Run = std::function<Clock::time_point(const std::vector<std::uint64_t>& readable)>;

    // `what` names the work in the log if `run` throws; `run` is then called again after kRetry, with the same ids.
    // Throws std::system_error if the kernel refuses a descriptor or a watch.
    Task(EventLoop& loop, const char* what, Run run);
    ~Task() { stop(); }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;

    // Makes the loop call `run` soon. Takes no lock and does not block, so it may be called with any lock held.
    void wake() const;
    // Makes the loop call `run` once `fd` is readable or its other end is closed. Each call to watch() causes at most
    // one call to `run`, and none if the descriptor is closed first. Returns false if `fd` cannot be watched
    // (fs.epoll.max_user_watches). Takes no lock.
    [[nodiscard]] bool watch(int fd, std::uint64_t id) const;
    // Ends the task: waits for a call in progress, and prevents later ones. Requires: the caller holds no lock that
    // `run` takes, and is not `run` itself. Idempotent.
    void stop();

   private:
    friend class EventLoop;
    void take_readable();

    EventLoop& loop_;
    const char* const what_;
    const Run run_;
    const UniqueFd events_;      // epoll, for wake_event_ and the watched descriptors
    const UniqueFd wake_event_;  // eventfd
    const std::uint64_t serial_;
    std::vector<std::uint64_t> readable_;  // used only by the loop; kept if `run` throws
  };

  // No task runs before start(). Throws std::system_error.
  EventLoop();
  ~EventLoop() { stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Starts the thread. Throws std::system_error. Call once.
  void start();
  // Ends the thread, after the call in progress and perhaps calls that are already due. Idempotent.
  void stop();
  // Calls each task now, on the calling thread. For the unit tests of services, with a loop that is not started.
  void run_all();

 private:
  struct Entry {
    Task* task;
    Clock::time_point due = kNever;
  };

  void run();
  int time_to_next() const EXCLUDES(mutex_);
  std::uint64_t next_due(std::uint64_t after, Clock::time_point now) const EXCLUDES(mutex_);
  void call(std::uint64_t serial) EXCLUDES(mutex_);
  std::uint64_t new_serial() EXCLUDES(mutex_);
  void add(Task& task) EXCLUDES(mutex_);
  void remove(std::uint64_t serial) EXCLUDES(mutex_);

  static constexpr std::chrono::milliseconds kRetry{100};

  const UniqueFd events_;      // epoll, for stop_event_ and each task's events_
  const UniqueFd stop_event_;  // eventfd
  mutable Mutex mutex_;        // not held while a task runs
  CondVar call_ended_;
  std::map<std::uint64_t, Entry> tasks_ GUARDED_BY(mutex_);  // the keys are the serials, from 1 upwards
  std::uint64_t last_serial_ GUARDED_BY(mutex_) = 0;
  std::uint64_t running_ GUARDED_BY(mutex_) = 0;  // the serial of the task in progress; 0: none
  std::thread thread_;
};

}  // namespace cacheshim
