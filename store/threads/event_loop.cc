// SPDX-License-Identifier: Apache-2.0
#include "store/threads/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "store/threads/guard.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kEvent = 0;  // the id of a stop or wake event; tasks and descriptors have ids from 1 upwards

[[noreturn]] void fail() {
  throw std::system_error(errno, std::generic_category(), "cannot wait for events");
}

UniqueFd checked(int fd) {
  if (fd == -1) fail();
  return UniqueFd(fd);
}

bool add_event(int events, int fd, std::uint32_t kinds, std::uint64_t id) {
  epoll_event event{};
  event.events = kinds;
  event.data.u64 = id;
  if (::epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) == 0) return true;
  return errno == EEXIST && ::epoll_ctl(events, EPOLL_CTL_MOD, fd, &event) == 0;
}

void add_or_throw(int events, int fd, std::uint64_t id) {
  if (!add_event(events, fd, EPOLLIN, id)) fail();
}

constexpr std::size_t kMostEvents = 64;

struct ReadyIds {
  std::array<epoll_event, kMostEvents> events;
  std::size_t count = 0;
};

// Returns the ids of up to kMostEvents ready descriptors; the others stay ready. Allocates nothing.
ReadyIds ready_ids(int events, int timeout_ms) {
  ReadyIds ready;
  const int count = ::epoll_wait(events, ready.events.data(), kMostEvents, timeout_ms);
  ready.count = static_cast<std::size_t>(std::max(count, 0));  // -1 (EINTR): no descriptor is ready
  return ready;
}

}  // namespace

EventLoop::Task::Task(EventLoop& loop, const char* what, Run run)
    : loop_(loop),
      what_(what),
      run_(std::move(run)),
      events_(checked(::epoll_create1(EPOLL_CLOEXEC))),
      wake_event_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      serial_(loop.new_serial()) {
  add_or_throw(events_.get(), wake_event_.get(), kEvent);
  add_or_throw(loop.events_.get(), events_.get(), serial_);
  loop.add(*this);  // last: if the constructor threw later, no destructor would remove the task
}

void EventLoop::Task::wake() const {
  (void)::eventfd_write(wake_event_.get(), 1);  // fails only if the task is due already
}

bool EventLoop::Task::watch(int fd, std::uint64_t id) const {
  return add_event(events_.get(), fd, EPOLLIN | EPOLLONESHOT, id + 1);
}

void EventLoop::Task::stop() {
  (void)::epoll_ctl(loop_.events_.get(), EPOLL_CTL_DEL, events_.get(), nullptr);  // fails if stop() is called again
  loop_.remove(serial_);
}

// Adds the ids of readable descriptors to readable_. Reserves memory first, because a descriptor is reported only once:
// an exception after the report would lose its id.
void EventLoop::Task::take_readable() {
  readable_.reserve(readable_.size() + kMostEvents);
  const ReadyIds ready = ready_ids(events_.get(), 0);
  for (std::size_t at = 0; at < ready.count; ++at) {
    const std::uint64_t id = ready.events.at(at).data.u64;
    eventfd_t value = 0;
    if (id == kEvent) {
      (void)::eventfd_read(wake_event_.get(), &value);  // cannot fail: it is readable
    } else {
      readable_.push_back(id - 1);
    }
  }
}

EventLoop::EventLoop()
    : events_(checked(::epoll_create1(EPOLL_CLOEXEC))),
      stop_event_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  add_or_throw(events_.get(), stop_event_.get(), kEvent);
}

void EventLoop::start() {
  thread_ = std::thread([this] { run(); });
}

void EventLoop::stop() {
  if (!thread_.joinable()) return;
  (void)::eventfd_write(stop_event_.get(), 1);  // cannot fail: it is written only once
  thread_.join();
}

void EventLoop::run_all() {
  std::vector<std::uint64_t> serials;
  {
    const MutexLock lock(mutex_);
    for (const auto& [serial, entry] : tasks_) serials.push_back(serial);
  }
  for (const std::uint64_t serial : serials) call(serial);
}

// Allocates nothing outside call(), which logs exceptions, because an exception that left the thread would end the
// daemon.
void EventLoop::run() {
  for (;;) {
    const ReadyIds ready = ready_ids(events_.get(), time_to_next());
    for (std::size_t at = 0; at < ready.count; ++at) {
      const std::uint64_t serial = ready.events.at(at).data.u64;
      if (serial == kEvent) return;
      call(serial);
    }
    const auto now = Clock::now();
    for (std::uint64_t serial = next_due(0, now); serial != 0; serial = next_due(serial, now)) {
      call(serial);
    }
  }
}

// Returns the milliseconds until the first task is due; -1 if no task has a time.
int EventLoop::time_to_next() const {
  auto next = kNever;
  {
    const MutexLock lock(mutex_);
    for (const auto& [serial, entry] : tasks_) next = std::min(next, entry.due);
  }
  if (next == kNever) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(
      std::clamp<std::chrono::milliseconds::rep>(wait.count(), 0, std::numeric_limits<int>::max()));
}

// Returns the serial of the first due task with a serial above `after`; 0 if there is none.
std::uint64_t EventLoop::next_due(std::uint64_t after, Clock::time_point now) const {
  const MutexLock lock(mutex_);
  for (auto at = tasks_.upper_bound(after); at != tasks_.end(); ++at) {
    if (at->second.due <= now) return at->first;
  }
  return 0;
}

// Does nothing if the task has been stopped.
void EventLoop::call(std::uint64_t serial) {
  Task* task = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto found = tasks_.find(serial);
    if (found == tasks_.end()) return;
    task = found->second.task;
    running_ = serial;
  }
  auto due = Clock::now() + kRetry;
  (void)run_guarded(task->what_, [&] {
    task->take_readable();
    due = task->run_(task->readable_);
    task->readable_.clear();
  });
  {
    const MutexLock lock(mutex_);
    running_ = 0;
    if (const auto found = tasks_.find(serial); found != tasks_.end()) found->second.due = due;
  }
  call_ended_.notify_all();
}

std::uint64_t EventLoop::new_serial() {
  const MutexLock lock(mutex_);
  return ++last_serial_;
}

void EventLoop::add(Task& task) {
  const MutexLock lock(mutex_);
  tasks_[task.serial_] = {&task};
}

void EventLoop::remove(std::uint64_t serial) {
  const MutexLock lock(mutex_);
  tasks_.erase(serial);
  while (running_ == serial) call_ended_.wait(mutex_);
}

}  // namespace cacheshim
